"""The order in which files must reach the disk: the power fails between each two of them.

Each scenario runs again without the one step that protects it, and then fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit.publish import publish_head
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import pending_cleans, run_clean, schedule_clean
from airflow_provider.services.savepoint import create_savepoint, delete_savepoint, savepoints
from airflow_provider.table import HudiTable
from airflow_provider.table.files.partition_metadata import PARTITION_METADATA
from airflow_provider.table.storage import durability, local_files
from airflow_provider.table.storage.durability import Disk, Durability, Place
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.instant import Action, State
from tests.unit.concurrency.simulation.scheduler import NoLock
from tests.unit.power.disk import ForgetfulDisk, Only, PowerCut
from tests.unit.power.lake import copied
from tests.unit.power.operations import SCHEMA, History
from tests.unit.power.processes import Process, together

Operation = Callable[[History, Random], object]

NOTHING = Only()
COMPLETED = r"link t/.hoodie/timeline/\d+_\d+"


def go_to(disk: ForgetfulDisk, history: History, operation: Operation, call: str) -> None:
    """Let the power fail before a call of an operation."""

    def before_step(name: str, path: str) -> None:
        if re.search(call, f"{name} {path}"):
            disk.cut()

    disk.before_step = before_step
    with disk.running(), pytest.raises(PowerCut):
        operation(history, Random(5))


def go(disk: ForgetfulDisk, history: History, *operations: Operation) -> None:
    """Let the power fail after operations."""
    with disk.running():
        for operation in operations:
            operation(history, Random(5))
    disk.cut()


@contextmanager
def processes(disk: ForgetfulDisk, history: History, *operations: Operation) -> Iterator[list[Process]]:
    """Processes that wait before their first calls; the power fails at the block's end."""
    keys = iter(([("a", 0)], [("b", 5)], [("c", 8)]))
    made = []
    for operation in operations:
        of_process = History(history.location, next(keys))
        of_process.version = 100
        of_process.after = history.after
        of_process.rows = of_process.coming = history.rows
        made.append(Process(of_process, [operation], Random(5)))  # type: ignore[list-item]
    together(disk, made)
    with disk.running():
        for process in made:
            process.go_on()
        yield made
        disk.cut()


def rows_of(history: History, *others: Process) -> None:
    """Check that the rows are those of all reported commits, and that the table takes further commits."""
    writes = [process.history for process in others]
    possible = [history.rows | {key: each.coming[key] for each in writes for key in each.keys}]
    possible += [history.rows | {key: each.coming[key] for key in each.keys} for each in writes]
    history.version = 1000
    history.check_after_power_failure(lambda found: found in [history.rows, history.coming, *possible])


# --- one process ------------------------------------------------------------------------------


def a_reported_write(key: tuple[str, int] = ("d", 9)) -> None:
    history, disk = copied("commit", is_indexed=True)
    history.keys = [key]  # in a new partition
    go(disk, history, History.upsert)
    disk.come_back(NOTHING)
    history.check_after_power_failure(lambda found: found == history.rows)


def a_reported_write_in_a_known_partition() -> None:
    a_reported_write(("a", 0))


def a_reported_clustering() -> None:
    history, disk = copied("commit", is_indexed=False)
    go(disk, history, History.cluster)
    newest = history.table.timeline().commits()[-1]
    disk.come_back(NOTHING)
    assert newest in HudiTable.open(history.location).timeline().commits()
    history.check_after_power_failure()


def an_entry_that_the_disk_does_not_take() -> None:
    history, disk = copied("commit", is_indexed=False)
    calls: list[str] = []

    def before_step(call: str, path: str) -> None:
        calls.append(f"{call} {path}")
        is_put = any(re.search("link t/.hoodie/commit_log/0", each) for each in calls)
        if is_put and calls[-1] == "fsync t/.hoodie/commit_log":
            raise OSError("no space")

    disk.before_step, before = before_step, history.rows
    with disk.running(), suppress(OSError):
        history.upsert(Random(5))
    assert history.rows == before, "it must not be reported"


def an_entry_without_its_content() -> None:
    history, disk = copied("commit", is_indexed=False)
    go_to(disk, history, History.upsert, "unlink t/.hoodie/commit_log/.staged")
    disk.come_back(Only(""))
    history.check_after_power_failure()


def a_data_file_without_its_plan() -> None:
    history, disk = copied("commit", is_indexed=False)
    before, history.keys = history.rows, [("a", 0)]
    go_to(disk, history, History.upsert, "open t/.hoodie/commit_log/staged")
    disk.come_back(Only("p=a", content=True))
    history.recover()
    assert history.instants_with_files() <= {
        each.requested_time for each in history.table.timeline().commits()
    }
    history.rows = before
    history.check()


def an_instant_without_its_heartbeat() -> None:
    history, disk = copied("commit", is_indexed=False)
    go_to(disk, history, History.upsert, "timeline/.staged")  # the plan, after the requested instant
    disk.come_back(Only("timeline"))
    history.recover()
    assert history.table.timeline().pending() == ()


def a_deletion_without_what_came_before() -> None:
    history, disk = copied("commit", is_indexed=False)
    with disk.running():
        history.upsert(Random(5))
        disk.cut()
    disk.come_back(Only("/staged/"))
    history.check_after_power_failure()


def a_savepoint_that_was_deleted() -> None:
    history, disk = copied("commit", is_indexed=False)
    instant = history.table.timeline().commits()[-1].requested_time
    create_savepoint(history.table, instant, lock=NoLock())
    disk = ForgetfulDisk(Path(disk.root))
    go(disk, history, lambda made, _: delete_savepoint(made.table, instant))
    disk.come_back(NOTHING)
    assert savepoints(HudiTable.open(history.location)) == []


def an_index_file_that_is_built_on() -> None:
    history, disk = copied("commit", is_indexed=True)
    go_to(disk, history, History.compact, "open t/.hoodie/metadata/files/.staged")
    disk.come_back(Only(".hfile"))
    history.check_after_power_failure()
    history.compact(Random())
    history.check()


def a_table(location: Path) -> None:
    disk = ForgetfulDisk(location)
    with disk.running():
        HudiTable.create(str(location / "lake" / "t"), name="t", schema=SCHEMA, record_key=["id"])
        disk.cut()
    disk.come_back(NOTHING)
    assert HudiTable.open(str(location / "lake" / "t")).schema == SCHEMA


# --- several ----------------------------------------------------------------------------------


def an_entry_on_another_ones_publication() -> None:
    history, disk = copied("commit", is_indexed=False)
    with processes(disk, history, History.upsert, History.upsert) as (first, second):
        second.go_on_to("open t/.hoodie/commit_log/staged")
        first.go_on_to(COMPLETED)
        first.go_on()  # on the timeline, and not forced
        second.go_on_to(COMPLETED)
    disk.come_back(NOTHING)
    rows_of(history, first, second)


def an_entry_that_another_one_publishes() -> None:
    history, disk = copied("commit", is_indexed=False)
    with processes(disk, history, History.upsert, History.upsert) as (first, second):
        first.go_on_to("link t/.hoodie/commit_log/0")
        first.go_on()  # in the log, and not forced
        second.go_on_to("unlink t/.hoodie/commit_log/staged")
    disk.come_back(NOTHING)
    rows_of(history, first)


def a_pending_instant_that_another_one_renamed() -> None:
    history, disk = copied("commit", is_indexed=False)

    def publish(made: History, _: Random) -> None:
        publish_head(made.table.storage, CommitLog(made.table.storage))

    with processes(disk, history, History.upsert, History.upsert, publish) as (first, other, helper):
        other.history.keys = first.history.keys
        first.go_on_to("open .*parquet")
        other.end()  # so that the first write has to replace its file group
        first.go_on_to("link .*replacecommit.inflight")
        first.go_on()  # renamed, and not forced
        helper.go_on_to(r"unlink .*/\d+.inflight")
        gone = helper.at.rpartition("/")[2]
        helper.go_on()
    disk.come_back(Only(gone))
    history.recover()
    newest = history.table.timeline().commits()[-1]
    inflight = replace(newest, state=State.INFLIGHT, completion_time=None)
    assert newest.action is Action.REPLACE_COMMIT
    assert history.table.storage.stat(instant_path(inflight)) is not None


def a_partition_that_another_one_made() -> None:
    history, disk = copied("commit", is_indexed=False)
    with processes(disk, history, History.upsert, History.upsert) as (first, second):
        first.history.keys, second.history.keys = [("d", 9)], [("d", 10)]
        first.go_on_to("open t/p=d/.staged")  # the folder is made
        second.end()
    disk.come_back(NOTHING)
    history.rows = history.rows | {("d", 10): second.history.version}
    history.check_after_power_failure(lambda found: found == history.rows)


def what_marks_a_partition_that_another_one_made() -> None:
    history, disk = copied("commit", is_indexed=False)
    with processes(disk, history, History.upsert, History.upsert) as (first, second):
        first.history.keys, second.history.keys = [("d", 9)], [("d", 10)]
        first.go_on_to("link t/p=d/.hoodie_partition_metadata")
        first.go_on()
        second.end()
    disk.come_back(NOTHING)
    assert "partitionDepth=1" in Path(history.location, "p=d", PARTITION_METADATA).read_text()


def _run_clean(history: History, _: Random) -> None:
    for instant in pending_cleans(history.table):
        run_clean(history.table, instant, lock=NoLock())


def _planned_clean() -> tuple[History, ForgetfulDisk]:
    history, disk = copied("commit", is_indexed=False)
    retention = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)
    assert schedule_clean(history.table, retention, lock=NoLock()) is not None
    return history, ForgetfulDisk(Path(disk.root))


def a_clean_that_another_one_completed() -> None:
    history, disk = _planned_clean()
    with processes(disk, history, _run_clean, _run_clean) as (first, second):
        second.go_on_to("unlink t/p=.*parquet")  # its own staged files would be forced with its entry
        first.go_on_to(COMPLETED)
        first.go_on()  # on the timeline, and not forced
        second.end()
    disk.come_back(Only("/staged/"))
    history.check_after_power_failure()


def what_a_clean_has_staged_once_more() -> None:
    history, disk = _planned_clean()
    with processes(disk, history, _run_clean, _run_clean) as (first, second):
        second.go_on_to("open t/.hoodie/commit_log/staged")
        first.go_on_to(COMPLETED)  # its entry names the staged files
        second.go_on_to("replace t/.hoodie/commit_log/staged")
        second.go_on()
    disk.come_back(Only("/staged/"))
    history.check_after_power_failure()
    assert not pending_cleans(HudiTable.open(history.location))


def a_manifest_of_another_ones_history() -> None:
    history, disk = copied("commit", is_indexed=False)
    history.archive(Random())
    for _ in range(3):
        history.upsert(Random())
    disk = ForgetfulDisk(Path(disk.root))
    with processes(disk, history, History.archive, History.archive) as (first, second):
        first.go_on_to(r"link t/.hoodie/timeline/history/\d")
        first.go_on()  # the file of instants, and not forced
        second.go_on_to("link t/.hoodie/timeline/history/manifest")
        second.go_on()
    disk.come_back(Only("manifest_"))
    history.check_after_power_failure()


def a_trim_that_another_one_began() -> None:
    history, disk = copied("commit", is_indexed=False)

    def trim(made: History, _: Random) -> None:
        CommitLog(made.table.storage).trim(2)

    with processes(disk, history, trim, trim) as (first, second):
        first.go_on_to("trimmed/0")
        first.go_on_to("fsync")  # the marker is there, and not forced
        second.go_on_to("unlink t/.hoodie/commit_log/0")
        second.go_on()
    disk.come_back(Only("commit_log/0"))
    log = CommitLog(Storage(history.location))
    assert log.trimmed() == 2
    history.check_after_power_failure()


# --- and without ------------------------------------------------------------------------------


def _without_call(method: str, module: str, function: str) -> AbstractContextManager[Any]:
    real = getattr(Storage, method)

    def passed_over(self: Storage, *args: Any, **named: Any) -> None:
        code = sys._getframe(1).f_code
        if (Path(code.co_filename).stem, code.co_name) != (module, function):
            real(self, *args, **named)

    return patch.object(Storage, method, passed_over)


def _without_memory_of(method: str, part: str) -> AbstractContextManager[Any]:
    real = getattr(Disk, method)

    def passed_over(self: Disk, target: str) -> None:
        if part not in target:
            real(self, target)

    return patch.object(Disk, method, passed_over)


def _taken_for(ending: str, taken_for: Place) -> AbstractContextManager[Any]:
    real = durability.place_of
    return patch.object(
        durability, "place_of", lambda path: taken_for if path.endswith(ending) else real(path)
    )


def _replaced(staged: str, target: str) -> bool:
    Path(staged).replace(target)
    return True


ALONE: list[tuple[Callable[[], None], Callable[[], AbstractContextManager[Any]]]] = [
    (a_reported_write, lambda: _without_memory_of("wrote", ".parquet")),
    (a_reported_write_in_a_known_partition, lambda: _without_memory_of("named", ".parquet")),
    (a_reported_write, lambda: _without_memory_of("wrote", ".log.")),
    (a_reported_write, lambda: _without_memory_of("named", ".log.")),
    (a_reported_write, lambda: _without_memory_of("wrote", "/staged/")),
    (a_reported_write, lambda: patch.object(Disk, "_not_anchored", lambda *_: set())),
    (a_reported_clustering, lambda: _without_call("sync_later", "staged_metadata", "stage")),
    (an_entry_that_the_disk_does_not_take, lambda: _without_call("sync", "commit_log", "append")),
    (an_entry_without_its_content, lambda: _without_memory_of("wrote", ".staged-")),
    (a_data_file_without_its_plan, lambda: _without_call("sync", "staged_metadata", "plan")),
    (an_instant_without_its_heartbeat, lambda: _without_memory_of("named", ".heartbeat")),
    (a_deletion_without_what_came_before, lambda: patch.object(Disk, "before_deletion", lambda *_: None)),
    (a_savepoint_that_was_deleted, lambda: patch.object(Disk, "deleted", lambda *_: None)),
    (an_index_file_that_is_built_on, lambda: _taken_for(".hfile", Place.DATA)),
]
BESIDE_OTHERS: list[tuple[Callable[[], None], Callable[[], AbstractContextManager[Any]]]] = [
    (an_entry_on_another_ones_publication, lambda: _without_call("sync_later", "commit_log", "append")),
    (an_entry_that_another_one_publishes, lambda: _without_call("sync", "publish", "ensure_published")),
    (
        a_pending_instant_that_another_one_renamed,
        lambda: _without_call("sync_later", "storage", "move_if_absent"),
    ),
    (a_partition_that_another_one_made, lambda: patch.object(Disk, "_not_anchored", lambda *_: set())),
    (
        what_marks_a_partition_that_another_one_made,
        lambda: _taken_for(PARTITION_METADATA, Place.DATA),
    ),
    (a_clean_that_another_one_completed, lambda: patch.object(durability, "_TIMELINES", ())),
    (what_a_clean_has_staged_once_more, lambda: patch.object(local_files, "_moved", _replaced)),
    (a_manifest_of_another_ones_history, lambda: _without_call("sync_later", "archive_files", "_put_next")),
    (a_trim_that_another_one_began, lambda: _without_call("sync", "commit_log", "trim")),
]
EACH = [*ALONE, *BESIDE_OTHERS]
_names = [f"{scenario.__name__}-{number}" for number, (scenario, _) in enumerate(EACH)]


@pytest.mark.parametrize("scenario", dict.fromkeys(scenario for scenario, _ in EACH))
def test_nothing_is_lost(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize(("scenario", "without"), EACH, ids=_names)
def test_it_would_be_without(
    scenario: Callable[[], None], without: Callable[[], AbstractContextManager[Any]]
) -> None:
    for is_indexed in (False, True):
        copied("commit", is_indexed=is_indexed)  # whole, also where this is the first test
    with pytest.raises(Exception), without():  # noqa: B017, PT011 - whatever is met first
        scenario()


def test_a_table_that_was_created_is_there(tmp_path: Path) -> None:
    a_table(tmp_path)


def test_it_would_not_be_without(tmp_path: Path) -> None:
    with pytest.raises(Exception), _without_call("sync", "hudi_table", "create"):  # noqa: B017, PT011
        a_table(tmp_path)


def test_at_the_level_none_what_was_reported_may_be_lost() -> None:
    history, disk = copied("none", is_indexed=False)
    before = history.rows
    go(disk, history, History.upsert)
    disk.come_back(NOTHING)
    assert history.table.storage.durability is Durability.NONE
    history.rows = before
    history.check_after_power_failure(lambda found: found == before)
