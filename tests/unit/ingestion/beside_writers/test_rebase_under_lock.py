"""A small rebase merges under the table lock, where no other write can overtake it."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from airflow_provider.concurrency.write import committing
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.string()})


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.create(SCHEMA)
    made.ingest("upsert", [{"id": 1, "value": "old"}])
    return made


class _Counting(MeetingLock):
    """A lock that counts how often it is acquired."""

    taken = 0

    def acquire(self, timeout: float | None = None) -> None:
        super().acquire(timeout)
        self.taken += 1


def test_a_long_wait_for_the_lock_does_not_make_a_merge_long(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited = time.monotonic, 0.0

    def other() -> None:
        nonlocal waited
        table.ingest("upsert", [{"id": 1, "value": "other"}])
        waited += committing.SHORT_TURN_SECONDS + 1.0  # more than a merge under the lock may take

    monkeypatch.setattr(time, "monotonic", lambda: clock() + waited)

    lock = _Counting(other, other)
    result = table.ingest("upsert", [{"id": 1, "value": "new"}], on_conflict="rebase", lock=lock)
    assert (result["rebases"], lock.taken) == (1, 1)
    assert table.rows() == [{"id": 1, "value": "new"}]
