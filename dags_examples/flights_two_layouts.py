"""The same flights in two tables, for two kinds of readers, that change together.

``lake.flights`` has a folder for each month, ``lake.flights_by_carrier`` one for each carrier. Each day goes
into both in one transaction: a reader with a snapshot sees the day in both tables, or in neither, also during
the load, and after a run that failed in the middle.

A day is in ``<landing>/day=2013-12-01/*.parquet``, where ``<landing>`` is the Airflow variable
``flights_landing``; the first table is that of ``flights.py``.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider.operators import (
    AbortTransactionOperator,
    BeginTransactionOperator,
    CommitTransactionOperator,
    CreateTableOperator,
    IngestOperator,
)

BY_MONTH, BY_CARRIER = "lake.flights", "lake.flights_by_carrier"

NUMBERS = [
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
]
COLUMNS = {
    **dict.fromkeys(NUMBERS, "bigint"),
    **dict.fromkeys(["carrier", "tailnum", "origin", "dest"], "string"),
    "time_hour": "timestamp",
}

# A run that is triggered by hand has no logical date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
MONTH = "{{ ((dag_run.logical_date or dag_run.run_after) | ds)[:7] }}"

with DAG(
    "flights_two_layouts",
    schedule="@daily",
    start_date=datetime(2013, 12, 1),
    catchup=False,
    max_active_runs=1,  # two transactions at once would conflict in the same file groups
    tags=["flights"],
    default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
):
    create = CreateTableOperator(
        task_id="create",
        table=BY_CARRIER,
        location="{{ var.value.lake }}/flights_by_carrier",
        schema=COLUMNS,
        record_key=["time_hour", "flight"],
        partition_by=["carrier"],
        if_not_exists=True,
    )
    begin = BeginTransactionOperator(task_id="begin", timeout=timedelta(hours=1))
    loads = [
        IngestOperator(
            task_id=name,
            table=table,
            source=f"{{{{ var.value.flights_landing }}}}/day={DAY}/*.parquet",
            operation="upsert",
            txn_id=begin.output,
            spark_conn_id=os.environ.get("FLIGHTS_STEADY_SPARK_CONN_ID") or None,
        )
        for name, table in {"by_month": BY_MONTH, "by_carrier": BY_CARRIER}.items()
    ]
    commit = CommitTransactionOperator(task_id="commit", txn_id=begin.output)
    abort = AbortTransactionOperator(task_id="abort", txn_id=begin.output)

    create >> begin >> loads >> commit
    loads >> abort
