"""A backfill beside steady ingestion: a year of flights, month by month, while new days keep arriving.

``flights_history`` writes the history into the table of ``flights.py`` while that file's ``flights_steady``
loads each day as it arrives. The newest month comes first; each month is a commit of its own. Between two
months the backfill yields to the daily loads. If both touch the same file group, the daily load goes first,
and the backfill merges only that file group again.

When the backfill is killed, its retry continues with the unfinished month.

The history is in ``<landing>/quarter=2013-01/*.parquet``, where ``<landing>`` is the Airflow variable
``flights_landing``.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider.operators import BackfillOperator, RollbackFailedWritesOperator

TABLE = "lake.flights"

with DAG("flights_history", schedule=None, catchup=False, tags=["flights"]):
    history = BackfillOperator(
        task_id="history",
        table=TABLE,
        source="{{ var.value.flights_landing }}/quarter=*/*.parquet",
        operation="upsert",
        order="newest_first",
        # With this id the history is written only once, by any run; another id writes it again.
        backfill_id="flights of 2013",
        patience=30,
        spark_conn_id=os.environ.get("FLIGHTS_BACKFILL_SPARK_CONN_ID") or None,
        retries=10,
        retry_delay=timedelta(seconds=5),
    )
    tidy = RollbackFailedWritesOperator(task_id="tidy", table=TABLE)
    history >> tidy
