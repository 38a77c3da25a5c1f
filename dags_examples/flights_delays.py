"""The delays by destination and month, in a table that a Python function fills after each load of flights.

``flights_delays`` starts when a load of ``flights.py`` has ended, because its schedule is the table's asset.
A function with ``@task.ingest`` returns an Arrow table of a few rows, and the task upserts them like an
IngestOperator, without Spark. The tables are in the folder of the Airflow variable ``lake``.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from airflow.sdk import DAG, task

from airflow_provider.assets import table_asset
from airflow_provider.hooks import TableHook
from airflow_provider.operators import CreateTableOperator
from airflow_provider.table import snapshot

FLIGHTS, DELAYS = "lake.flights", "lake.delays"

with DAG(
    "flights_delays",
    schedule=[table_asset(FLIGHTS)],
    catchup=False,
    max_active_runs=1,
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
) as dag:
    create = CreateTableOperator(
        task_id="create",
        table=DELAYS,
        location="{{ var.value.lake }}/delays",
        schema={"dest": "string", "month": "bigint", "flights": "bigint", "delay": "double"},
        record_key=["dest", "month"],
        if_not_exists=True,
    )

    @task.ingest(table=DELAYS, operation="upsert")
    def delays() -> pa.Table:
        """One row for each destination and month: its flights, and their mean delay in minutes."""
        flights = snapshot(TableHook().get_table(FLIGHTS)).to_table(columns=["dest", "month", "arr_delay"])
        arrived = flights.filter(pc.is_valid(flights["arr_delay"]))
        summed = arrived.group_by(["dest", "month"]).aggregate(
            [("arr_delay", "count"), ("arr_delay", "mean")]
        )
        return summed.rename_columns({"arr_delay_count": "flights", "arr_delay_mean": "delay"})

    create >> delays()
