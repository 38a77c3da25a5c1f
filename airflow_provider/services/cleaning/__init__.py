"""Cleaning: it deletes file slices that no reader needs any more, also in the metadata table.

``clean_plan`` makes the plan, as a function of the timeline. ``cleaning`` executes it, and may be repeated.
"""

from airflow_provider.services.cleaning.clean_plan import CleanPlan
from airflow_provider.services.cleaning.cleaning import clean, pending_cleans, plan_clean
from airflow_provider.services.cleaning.metadata_cleaning import (
    archive_metadata_timeline,
    delete_leftovers,
    delete_superseded,
)
from airflow_provider.services.cleaning.retention import CleaningPolicy, Retention

__all__ = [
    "CleanPlan",
    "CleaningPolicy",
    "Retention",
    "archive_metadata_timeline",
    "clean",
    "delete_leftovers",
    "delete_superseded",
    "pending_cleans",
    "plan_clean",
]
