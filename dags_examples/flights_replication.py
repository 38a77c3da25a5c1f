"""A copy of the lake elsewhere, kept up to date all day, and a failover to it.

``flights_replication`` copies the database of ``flights.py``, with its data, into the metastore of the
connection ``table_metastore_copy`` and the folder of the variable ``lake_copy``. It follows the source for an
hour; then the next run continues. Between events it waits in the triggerer and holds no slot.

Start ``flights_failover`` by hand to hand the lake over to the copy while both sides are reachable. If the
source is gone, use `table-services failover --promote`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_provider.operators import FailoverOperator, ReplicateOperator
from airflow_provider.sensors import ReplicationLagSensor

PAIR: dict[str, Any] = {
    "source_metastore_conn_id": "table_metastore_default",
    "target_metastore_conn_id": "table_metastore_copy",
}
REPLICATION: dict[str, Any] = {
    "policy": "flights",
    "databases": {"lake": "lake_copy"},
    "locations": [("{{ var.value.lake }}", "{{ var.value.lake_copy }}")],
    **PAIR,
}

with DAG(
    "flights_replication",
    schedule="@hourly",
    max_active_runs=1,
    catchup=False,
    params={"minutes": 59.0},
    tags=["flights"],
) as replication:
    ReplicateOperator(
        task_id="replicate",
        follow_for="{{ params.minutes * 60 }}",
        poll_interval=2.0,
        deferrable=True,
        **REPLICATION,
    )

with DAG(
    "flights_failover",
    schedule=None,
    max_active_runs=1,
    tags=["flights"],
) as hand_over:
    # The first task copies most of the rest while writers still run.
    close = ReplicationLagSensor(
        task_id="close", policy="flights", max_seconds=300, poke_interval=5, deferrable=True, **PAIR
    )
    close >> FailoverOperator(task_id="fail_over", mode="planned", **REPLICATION)
