"""A record index orders by requested times: a write that a later-requested one overtakes begins again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency.conflicts import turns
from airflow_provider.exceptions import WriteConflictError
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow, write_rows
from airflow_provider.table.timeline.instant import Action
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.ingestion.beside_writers.test_turns import AlwaysLate
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.string()})
REBASE: dict[str, Any] = {"on_conflict": "rebase"}


def row(id_: int, value: str) -> dict[str, Any]:
    return {"id": id_, "value": value}


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.create(SCHEMA)
    made.ingest("upsert", [row(1, "old"), row(2, "old")])
    schedule_index(made.table, ["files", "record_index"])
    run_index(made.table)
    return made


@pytest.fixture
def adds(table: LakeTable) -> Callable[[], object]:
    """Let a write that was requested later change the same file group, and add a key to it."""
    ids: Iterator[int] = iter(range(100, 200))
    return lambda: table.ingest("upsert", [row(1, "theirs"), row(next(ids), "new")])


def test_it_is_written_again_under_a_later_requested_time(
    table: LakeTable, adds: Callable[[], object]
) -> None:
    result = ingest_arrow(table.location, table.arrow([row(2, "mine")]), lock=MeetingLock(adds), **REBASE)
    commits = table.table.timeline().commits()
    assert result["instant"] == commits[-1].requested_time == max(each.requested_time for each in commits)
    assert {each.action for each in commits} == {Action.COMMIT}, "no file group was taken out"
    assert_indexes_equal_a_rebuild(table.table)
    assert sorted(table.rows(), key=itemgetter("id")) == [
        row(1, "theirs"),
        row(2, "mine"),
        row(100, "new"),
    ]


def test_it_gets_through_in_its_turn(table: LakeTable, adds: Callable[[], object]) -> None:
    lock = AlwaysLate(adds)
    result = ingest_arrow(table.location, table.arrow([row(2, "mine")]), lock=lock, **REBASE)
    overtaken = [each for each in table.rows() if each["id"] >= 100]
    assert len(overtaken) == turns.LOSSES_BEFORE_A_TURN + 1
    assert result["instant"] == table.table.timeline().commits()[-1].requested_time
    assert_indexes_equal_a_rebuild(table.table)


def test_what_takes_longer_than_a_turn_says_so(
    table: LakeTable, adds: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "turn_seconds", lambda _: 0.0)
    with pytest.raises(WriteConflictError, match=r"requested later.*load fewer rows at once"):
        ingest_arrow(table.location, table.arrow([row(2, "mine")]), lock=AlwaysLate(adds), **REBASE)
    assert row(2, "old") in table.rows()
