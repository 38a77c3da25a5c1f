"""A service that fails again and again stops itself, and reports that, until a person clears it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.plans.service_failures import (
    Service,
    clear_failures,
    failures,
    stopping_itself,
)
from airflow_provider.exceptions import (
    CorruptTableError,
    InvalidInputError,
    LockTimeoutError,
    ServiceStoppedError,
)
from airflow_provider.indexing import IndexRunSettings, run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.services.archival import archive, archive_when_due
from airflow_provider.services.cleaning.clean_plan import CleaningPolicy, Retention
from airflow_provider.services.cleaning.cleaning import clean, schedule_clean
from airflow_provider.services.compaction import compact, compact_when_due, schedule_compaction
from airflow_provider.table import HudiTable
from airflow_provider.table.metadata_table.reader import METADATA_FOLDER
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.timeline.active import instant_path
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.services.indexed_table import EVERY_COMMIT, commit, indexed_table

NOW_ONLY = Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, 1)


@dataclass(frozen=True)
class Broken:
    """A service that fails as long as a file is damaged.

    :param service: the service's name.
    :param plan: prepares the service's input; returns the file, relative to the table.
    :param run: runs the service.
    """

    service: Service
    plan: Callable[[HudiTable], str]
    run: Callable[..., Any]


def planned_clean(table: HudiTable) -> str:
    instant = schedule_clean(table, NOW_ONLY)
    assert instant is not None
    return instant_path(Instant(instant, Action.CLEAN, State.REQUESTED))


def planned_compaction(table: HudiTable) -> str:
    assert schedule_compaction(table, EVERY_COMMIT) is not None
    base_files = (Path(table.location) / METADATA_FOLDER / "files").glob("*.hfile")
    return str(min(base_files).relative_to(table.location))


def planned_index(table: HudiTable) -> str:
    assert schedule_index(table, ["column_stats"]) is not None
    return table.view().all_base_files()[0].path


SERVICES = [
    Broken(Service.CLEANING, planned_clean, lambda table, **most: clean(table, NOW_ONLY, **most)),
    Broken(
        Service.COMPACTION, planned_compaction, lambda table, **most: compact(table, EVERY_COMMIT, **most)
    ),
    Broken(
        Service.ARCHIVAL,
        lambda _: f"{HISTORY_FOLDER}/manifest_1",
        archive,
    ),
    Broken(
        Service.INDEXING,
        planned_index,
        lambda table, **most: run_index(table, settings=IndexRunSettings(**most)),
    ),
]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    """A table with four logged versions of a row; three of the commits are due for archival."""
    location = indexed_table(tmp_path / "t").location
    with (Path(location) / PROPERTIES_PATH).open("a") as properties:
        properties.write("hoodie.keep.min.commits=1\nhoodie.keep.max.commits=2\n")
    made = HudiTable.open(location)
    for _ in range(4):
        commit(made, 1)
    return made


def break_it(table: HudiTable, broken: Broken) -> Callable[[], object]:
    """Damage the file until the service has stopped itself; return a function that repairs the file."""
    path = Path(table.location) / broken.plan(table)
    right = path.read_bytes() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"damaged")
    for _ in range(3):
        with pytest.raises(CorruptTableError):
            broken.run(table)
    return path.unlink if right is None else lambda: path.write_bytes(right)


@pytest.mark.parametrize("broken", SERVICES, ids=lambda each: str(each.service))
def test_it_stops_itself_after_three_failures_until_a_person_clears_it(
    table: HudiTable, broken: Broken
) -> None:
    mend = break_it(table, broken)
    told = f"{broken.service} has failed 3 times in a row.*CorruptTableError.*--clear {broken.service}"
    with pytest.raises(ServiceStoppedError, match=told):
        broken.run(table)
    with pytest.raises(CorruptTableError):  # a person tries whatever happened
        broken.run(table, max_failures=None)
    mend()
    with pytest.raises(ServiceStoppedError, match="4 times"):
        broken.run(table)
    clear_failures(table, broken.service)
    assert broken.run(table)
    assert failures(table, broken.service) == []


@pytest.mark.parametrize("broken", SERVICES[1:3], ids=lambda each: str(each.service))
def test_a_load_is_done_and_says_what_has_stopped(
    table: HudiTable, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    break_it(table, broken)
    compact_when_due(table, 10)
    archive_when_due(table, 11)
    assert f"{broken.service} has failed 3 times in a row" in caplog.text


def test_it_goes_on_when_its_input_is_another_and_a_success_begins_the_count_anew(table: HudiTable) -> None:
    def run(given: str, error: Exception | None = None) -> None:
        with stopping_itself(table, Service.CLEANING, lambda: given, 2):
            if error is not None:
                raise error

    for _ in range(2):
        with pytest.raises(OSError, match="no space left"):
            run("one", OSError("no space left"))
    with pytest.raises(ServiceStoppedError, match=r"2 times in a row.*OSError: no space left.*input, one,"):
        run("one")
    with pytest.raises(OSError, match="still none"):
        run("another", OSError("still none"))
    with pytest.raises(ServiceStoppedError, match="3 times"):
        run("another")
    run("a third")
    run("another")
    assert failures(table, Service.CLEANING) == []


@pytest.mark.parametrize("error", [LockTimeoutError("held"), InvalidInputError("a wrong argument")])
def test_what_is_not_the_services_fault_does_not_count(table: HudiTable, error: Exception) -> None:
    for _ in range(2):
        with pytest.raises(type(error)), stopping_itself(table, Service.ARCHIVAL, lambda: "", 1):
            raise error
    assert failures(table, Service.ARCHIVAL) == []
