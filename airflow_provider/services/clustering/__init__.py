"""Clustering: the plan, its execution group by group, and the order in which rows are laid out.

``clustering_plan`` chooses a plan and ``clustering`` executes it; ``clustering_task`` rewrites one group and
runs in a Spark executor or in this process.
"""

from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    clustering_progress,
    earlier_clustering,
    pending_clusterings,
    pending_plan,
    preview_clustering,
    result_of,
    run_clustering,
    schedule_clustering,
    write_group,
)
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.clustering.clustering_task import ClusteringTask

__all__ = [
    "ClusteringJob",
    "ClusteringSettings",
    "ClusteringTask",
    "cluster_in_process",
    "clustering_progress",
    "earlier_clustering",
    "pending_clusterings",
    "pending_plan",
    "preview_clustering",
    "result_of",
    "run_clustering",
    "schedule_clustering",
    "write_group",
]
