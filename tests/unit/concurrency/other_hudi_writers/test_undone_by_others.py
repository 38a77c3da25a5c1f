"""Another Hudi writer undoes, archives or overtakes commits: Hudi's timeline decides, and the log follows.

Hand-written instants stand for the JVM's, as in ``test_other_hudi_writers``. They appear while the writer
under test is paused at a named step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.commit import commit_point as door
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.log.commit_log import CommitLog
from airflow_provider.concurrency.log.fate import Fate, fate_of
from airflow_provider.concurrency.log.log_entry import Archival, Commit, LogEntry, Revert
from airflow_provider.concurrency.write.operation_lookup import find_operation
from airflow_provider.exceptions import InstantRolledBackError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import (
    Jvm,
    SharedLock,
    create_trips,
    fares,
    only_file,
    rows,
)


class Killed(BaseException):
    """Stands for SIGKILL: no code of the package catches it."""


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create_trips(str(tmp_path / "trips"))


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Call a function once, right before the writer under test puts its entry, or publishes it."""

    def at(step: str, happens: Callable[[], object]) -> None:
        target: Any = CommitLog if step == "append" else door
        original, left = getattr(target, step), [happens]

        def first(*args: Any, **kwargs: Any) -> Any:
            entry = next(
                each for each in args if not isinstance(each, int | CommitLog) and hasattr(each, "owner")
            )
            if left and isinstance(entry, Commit):
                left.pop()()
            return original(*args, **kwargs)

        monkeypatch.setattr(target, step, first)

    return at


def upsert(table: HudiTable, fares: dict[int, float], **settings: Any) -> dict[str, Any]:
    return ingest_arrow(table, rows(fares), **settings)


def shared(table: HudiTable) -> SharedLock:
    return SharedLock(table, lambda: None)


def kill() -> None:
    raise Killed


def newest(table: HudiTable) -> str:
    return table.timeline().commits()[-1].requested_time


def goes_on(table: HudiTable, expected: dict[int, float]) -> None:
    """Check that both readers see the expected rows, and that every kind of work continues."""
    assert fares(table) == expected
    upsert(table, {2: 20.0})
    Jvm(table).upsert({1: 11.0}, into=only_file(table)) if len(expected) == 2 else None
    upsert(table, {2: 21.0})
    clean(HudiTable.open(table.location))
    archive(HudiTable.open(table.location))
    assert fares(table)[2] == 21.0
    assert fares(table).keys() == expected.keys()


class TestRolledBack:
    def test_the_newest_commit(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0}, operation_key="mine")
        Jvm(table).roll_back(newest(table))
        goes_on(table, {1: 1.0, 2: 2.0})

    def test_readers_leave_it_out_from_the_plan_on(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0})
        Jvm(table).begin_rollback_of(newest(table))
        found = snapshot(HudiTable.open(table.location)).to_table()
        assert dict(zip(*(found[name].to_pylist() for name in ("id", "fare")), strict=True)) == {
            1: 1.0,
            2: 2.0,
        }

    def test_it_is_not_found_by_its_operation_key_any_more(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0}, operation_key="mine")
        undone = newest(table)
        Jvm(table).roll_back(undone)
        upsert(table, {2: 20.0})
        assert find_operation(table, "mine") is None
        assert fate_of(table.storage, CommitLog(table.storage), undone) is Fate.UNDONE

    def test_whoever_comes_next_decides_behind_what_the_log_says_of_it(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0})
        Jvm(table).roll_back(newest(table))
        seen: list[LogEntry | None] = []

        def decide(moment: Moment) -> Archival:
            seen.append(moment.newest)
            return Archival(priority=100)

        entry = door.commit(table.storage, decide)
        (before,) = seen
        assert isinstance(before, Revert)
        assert entry is not None
        assert entry.sequence == before.sequence + 1

    def test_an_older_commit_by_a_restore(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0}, operation_key="mine")
        upsert(table, {2: 20.0}, operation_key="mine, too")
        last, before, _ = reversed(table.timeline().commits())
        Jvm(table).restore([last.requested_time, before.requested_time])
        upsert(table, {2: 21.0})
        assert find_operation(table, "mine") is None
        assert find_operation(table, "mine, too") is None
        assert fares(table) == {1: 1.0, 2: 21.0}

    def test_before_it_is_shown(self, table: HudiTable, at: Callable[..., None]) -> None:
        at("publish", kill)
        with pytest.raises(Killed):
            upsert(table, {1: 10.0, 7: 7.0})
        (dead,) = (each.requested_time for each in table.timeline().pending())
        Jvm(table).roll_back(dead)
        Jvm(table).upsert({7: 70.0})
        upsert(table, {2: 20.0})
        assert fares(table) == {1: 1.0, 2: 20.0, 7: 70.0}
        assert not [
            path
            for path in Path(table.location).rglob("*")
            if dead in path.name and path.suffix == ".parquet"
        ]

    @pytest.mark.parametrize("step", ["append", "publish"])
    def test_while_it_stands_still(self, table: HudiTable, at: Callable[..., None], step: str) -> None:
        def roll_back() -> None:
            (dead,) = (each.requested_time for each in table.timeline().pending())
            Jvm(table).roll_back(dead)
            Jvm(table).upsert({7: 70.0})

        at(step, roll_back)
        with pytest.raises(InstantRolledBackError, match="another Hudi writer"):
            upsert(table, {7: 7.0}, lock=shared(table))
        assert fares(table) == {1: 1.0, 2: 2.0, 7: 70.0}
        goes_on(table, {1: 1.0, 2: 2.0, 7: 70.0})


class TestOvertaken:
    @pytest.mark.parametrize("step", ["append", "publish"])
    def test_in_the_same_file_group(self, table: HudiTable, at: Callable[..., None], step: str) -> None:
        at(step, lambda: Jvm(table).upsert({1: 5.0}, into=only_file(table)))
        with pytest.raises(InstantRolledBackError, match="written to its file groups"):
            upsert(table, {2: 20.0}, lock=shared(table))
        assert fares(table) == {1: 5.0, 2: 2.0}
        upsert(table, {2: 20.0}, lock=shared(table))
        assert fares(table) == {1: 5.0, 2: 20.0}

    @pytest.mark.parametrize("step", ["append", "publish"])
    def test_in_another_file_group(self, table: HudiTable, at: Callable[..., None], step: str) -> None:
        at(step, lambda: Jvm(table).upsert({7: 7.0}))
        upsert(table, {2: 20.0}, lock=shared(table))
        assert fares(table) == {1: 1.0, 2: 20.0, 7: 7.0}

    def test_by_who_finishes_what_was_killed(self, table: HudiTable, at: Callable[..., None]) -> None:
        at("publish", kill)
        with pytest.raises(Killed):
            upsert(table, {1: 10.0}, lock=shared(table))
        Jvm(table).upsert({1: 5.0}, into=only_file(table))
        upsert(table, {2: 20.0}, lock=shared(table))
        assert fares(table) == {1: 5.0, 2: 20.0}

    def test_the_log_says_that_it_is_undone(self, table: HudiTable, at: Callable[..., None]) -> None:
        at("publish", lambda: Jvm(table).upsert({1: 5.0}, into=only_file(table)))
        with pytest.raises(InstantRolledBackError):
            upsert(table, {2: 20.0}, lock=shared(table), operation_key="mine")
        newest_entry = CommitLog(table.storage).newest()
        assert isinstance(newest_entry, Revert)
        assert newest_entry.by_another
        assert find_operation(table, "mine") is None


class TestArchived:
    def test_the_newest_commit(self, table: HudiTable) -> None:
        upsert(table, {1: 10.0}, operation_key="mine")
        upsert(table, {2: 20.0})
        mine = list(table.timeline().commits())
        Jvm(table).upsert({7: 7.0})
        Jvm(table).archive(mine)
        assert [each.action for each in table.timeline().commits()] == [Action.COMMIT]
        goes_on(table, {1: 10.0, 2: 20.0, 7: 7.0})
