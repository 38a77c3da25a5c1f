"""What a write has to look at, and what not."""

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
    """Remembers what was listed."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def names(self, path: str) -> Iterable[str]:
        self.listed.append(path)
        return super().names(path)


@pytest.mark.parametrize(("operation", "looks"), [("bulk_insert", 2), ("upsert", 3)])
def test_who_builds_on_nothing_lists_the_timeline_once_less(lake: Lake, operation: str, looks: int) -> None:
    location = lake.create(ROWS.schema).location
    for _ in range(2):  # at the first two commits it is looked whether there is something to compact
        ingest_arrow(location, ROWS, "upsert")
    storage = Listing(location)
    ingest_arrow(HudiTable.at(storage), ROWS, operation)
    assert (
        storage.listed.count(TIMELINE_FOLDER) == looks
    )  # for the columns, when it begins, and at its commit
