"""A DAG that starts when rows have arrived in a table, whoever wrote them.

``flights_arrivals`` is started by the INSERT events of the table of ``flights.py``, which each of its
commits leaves in the metastore's notification log. The trigger follows the log by a cursor of its own,
kept in the metastore, so that no event is lost, whatever stops meanwhile; some may come twice.

The events only wake the DAG. What is to be done it reads from the log itself, from where its last run
ended: nothing is done twice, and nothing is left out when one run starts for several deliveries.
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
        """What arrived since the last run, and how many flights there are by now."""
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
