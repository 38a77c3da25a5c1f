"""A DAG that starts when rows have arrived in a table, from any writer.

Each commit to the table of ``flights.py`` leaves INSERT events in the metastore's notification log, and these
start ``flights_arrivals``. The trigger follows the log by a cursor of its own in the metastore, so it loses
no event, even if the triggerer stops meanwhile; some events may come twice.

The events only wake the DAG. The DAG reads its work from the log itself, from the end of its last run on. So
it does nothing twice, and leaves nothing out when one run starts for several deliveries.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider.hooks import MetastoreHook, TableHook
from airflow_provider.table import snapshot
from airflow_provider.triggers import NotificationLogEventTrigger

TABLE = "lake.flights"
CURSOR = "flights_arrivals"

ARRIVALS = Asset(
    "flights_arrivals",
    watchers=[
        AssetWatcher(
            name="inserts",
            trigger=NotificationLogEventTrigger(
                consumer=f"{CURSOR}_trigger", table=TABLE, event_types=["INSERT"], poll_interval=2
            ),
        )
    ],
)

with DAG("flights_arrivals", schedule=[ARRIVALS], max_active_runs=1, catchup=False, tags=["flights"]):

    @task
    def count(triggering_asset_events: Any = None) -> dict[str, Any]:
        """Count the flights that arrived since the last run, and all flights."""
        delivered = [
            event["event_id"]
            for asset_event in triggering_asset_events[ARRIVALS]
            for event in asset_event.extra["payload"]["events"]
        ]
        metastore = MetastoreHook().get_metastore()
        # The first run begins with what woke it; the others, where the one before ended.
        start = min(delivered) - 1 if delivered else None
        position = metastore.register_consumer(CURSOR, event_id=start, if_not_exists=True).event_id
        database, _, name = TABLE.partition(".")
        # Asked for before the events: up to there this run has looked, whatever it wanted of it.
        seen = metastore.current_event_id()
        arrived = metastore.next_events(position, event_types=["INSERT"], database=database, table=name)
        if not arrived:
            metastore.advance_consumer(CURSOR, seen)
            raise AirflowSkipException("an earlier run has seen it")
        files = [file for event in arrived for file in event.message["files"]]
        flights = snapshot(TableHook().get_table(TABLE)).count_rows()
        # To the last event that was looked at, not to the last one that was wanted: a sensor that waits for
        # all consumers waits for this one, too.
        metastore.advance_consumer(CURSOR, max(seen, arrived[-1].event_id))
        return {"events": [event.event_id for event in arrived], "files": len(files), "flights": flights}

    count()
