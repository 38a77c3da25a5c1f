"""A compaction of the metadata table, while another process drops one of its indexes and builds it again.

A compactor may pause after it has computed a base file of the old index. That file must never count as a base
file of the new index, whose records it would hide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.indexing.drop import drop_index
from airflow_provider.indexing.index_run import IndexRun
from airflow_provider.indexing.run import pending_indexings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services import compaction
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning import archive_metadata_timeline
from airflow_provider.services.compaction import compact, run_compaction, schedule_compaction
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER, MetadataTable, metadata_storage
from tests.unit.concurrency.simulation.scheduler import Killed, NoLock
from tests.unit.services.indexed_table import (
    EVERY_COMMIT,
    RECORD_INDEX,
    check_indexes,
    commit,
    indexed_table,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = indexed_table(tmp_path / "trips")
    commit(made, 1)
    return made


@pytest.fixture
def planned(table: HudiTable) -> str:
    instant = schedule_compaction(table, EVERY_COMMIT, lock=NoLock())
    assert instant is not None
    return instant


def drop_and_build(table: HudiTable) -> None:
    drop_index(table, [RECORD_INDEX], lock=NoLock())
    commit(table, 2)
    build(table)


def build(table: HudiTable) -> None:
    assert schedule_index(table, [RECORD_INDEX], lock=NoLock()) is not None
    (plan,) = pending_indexings(table)
    run_index(table, plan, lock=NoLock())


def before_it_writes(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None], then: Callable[[], None] = lambda: None
) -> None:
    """Call a function before a compactor writes into the record index, and another one right after."""
    real = compaction.compacted

    def compacted(storage: Any, own: Any, found: Any, instant: str) -> Any:
        if found.partition != RECORD_INDEX:
            return real(storage, own, found, instant)
        monkeypatch.setattr(compaction, "compacted", real)
        records = list(own.slice_records(found))  # the compactor has read the slice before the drop
        monkeypatch.setattr(own, "slice_records", lambda _: iter(records))
        meanwhile()
        written = real(storage, own, found, instant)
        then()
        return written

    monkeypatch.setattr(compaction, "compacted", compacted)


def of(table: HudiTable, instant: str) -> list[str]:
    """The files of the record index that a compaction has written."""
    return [name for name in table.storage.names(f"{METADATA_FOLDER}/{RECORD_INDEX}") if instant in name]


def killed() -> None:
    raise Killed


def check(table: HudiTable) -> None:
    commit(table, 3)
    check_indexes(table)
    assert rows(table) == [1, 2, 3]


def test_what_a_compactor_writes_after_a_drop_it_takes_back(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it_writes(monkeypatch, lambda: drop_index(table, [RECORD_INDEX], lock=NoLock()) and None)
    assert RECORD_INDEX not in run_compaction(table, planned).partitions
    assert of(table, planned) == []


def test_what_a_compactor_writes_into_an_index_that_was_built_again_it_takes_back(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it_writes(monkeypatch, lambda: drop_and_build(table))
    assert RECORD_INDEX not in run_compaction(table, planned).partitions
    assert of(table, planned) == []
    check(table)


def test_a_file_that_a_killed_compactor_left_after_a_drop_is_deleted_by_the_next_build(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it_writes(monkeypatch, lambda: drop_index(table, [RECORD_INDEX], lock=NoLock()) and None, killed)
    with pytest.raises(Killed):
        run_compaction(table, planned)
    assert len(of(table, planned)) == 1
    commit(table, 2)  # a later compactor completes the plan, without the index
    compact(table, EVERY_COMMIT, lock=NoLock())
    build(table)
    assert of(table, planned) == []
    check(table)


def test_a_file_that_comes_while_an_index_is_built_again_is_deleted_by_its_completion(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = IndexRun._complete

    def complete(self: IndexRun, caught_up: tuple[str, ...]) -> Any:
        late()
        assert len(of(table, planned)) == 1
        return real(self, caught_up)

    def late() -> None:
        table.storage.put(path, content)

    content, path = file_of_the_compaction(table, planned, monkeypatch)
    monkeypatch.setattr(IndexRun, "_complete", complete)
    drop_and_build(table)
    assert of(table, planned) == []
    check(table)


def test_a_file_that_comes_when_the_index_is_there_again_is_not_read_and_then_cleaned(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path = file_of_the_compaction(table, planned, monkeypatch)
    drop_and_build(table)
    table.storage.put(path, content)
    # The instant that decides is not archived, although its name is lower than all archived ones.
    commit(table, 3)
    archive(table, keep_min=1, keep_max=2, lock=NoLock())
    assert archive_metadata_timeline(table) == []
    (group,) = (
        each
        for each in MetadataTable(metadata_storage(table.storage)).file_groups(RECORD_INDEX)
        if each.of_dropped
    )
    assert [each.instant for each in group.of_dropped] == [planned]
    check_indexes(table)
    assert rows(table) == [1, 2, 3]
    for number in (4, 5):
        compact(table, EVERY_COMMIT, lock=NoLock())
        commit(table, number)
    assert of(table, planned) == []
    check_indexes(table)
    assert rows(table) == [1, 2, 3, 4, 5]


def file_of_the_compaction(
    table: HudiTable, planned: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, str]:
    """Run the compaction; return content and path of its base file in a file group of the record index."""
    run_compaction(table, planned)
    name = of(table, planned)[0]
    path = f"{METADATA_FOLDER}/{RECORD_INDEX}/{name}"
    return table.storage.read(path), path
