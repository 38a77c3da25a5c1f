"""What a table's properties say of merging, in this process."""

from __future__ import annotations

from typing import Any

from airflow_provider.ingestion import ingest_arrow
from tests.ingestion.interleaving import MeetingLock
from tests.ingestion.merge_semantics import *  # noqa: F403
from tests.ingestion.merge_semantics import START, row, without


def test_a_rebase_merges_as_the_table_says(started: Any) -> None:
    table = started(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    batch = [row("1", None, 30, name="late"), row("2", 9), row("3", 1, 11, _hoodie_is_deleted=True)]
    meanwhile = [row("1", 7, 20, name=None), row("3", 1, 12)]
    lock = MeetingLock(lambda: table.ingest("upsert", meanwhile))
    result = ingest_arrow(table.location, table.arrow(batch), "upsert", lock=lock, on_conflict="rebase")
    assert result["rebases"] == 1
    table.check_now(
        [row("1", 7, 30, name="late"), row("2", 9), row("3", 1, 12), *without(START, "1", "2", "3")]
    )
