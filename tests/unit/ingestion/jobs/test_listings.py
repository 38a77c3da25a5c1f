"""The folders that a write lists, and those that it need not list."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from tests.ingestion_contract.lake import Lake

ROWS = pa.table({"id": [1, 2], "value": [1.0, 2.0]})


class Listing(Storage):
    """A storage that records its listings."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def names(self, path: str) -> Iterable[str]:
        self.listed.append(path)
        return super().names(path)


@pytest.mark.parametrize(("operation", "looks"), [("bulk_insert", 2), ("upsert", 3)])
def test_who_builds_on_nothing_lists_the_timeline_once_less(lake: Lake, operation: str, looks: int) -> None:
    location = lake.create(ROWS.schema).location
    for _ in range(2):  # the first two commits check whether a compaction is due
        ingest_arrow(location, ROWS, "upsert")
    storage = Listing(location)
    ingest_arrow(HudiTable.at(storage), ROWS, operation)
    assert (
        storage.listed.count(TIMELINE_FOLDER) == looks
    )  # for the columns, when the write begins, and at its commit
