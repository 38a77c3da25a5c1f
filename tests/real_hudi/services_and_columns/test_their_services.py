"""This package on a table after cleans, archivals, rollbacks and savepoints of the JVM's Hudi."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.concurrency.readers import reader_lease
from airflow_provider.exceptions import TableServiceError, UnsupportedTableError
from airflow_provider.services.archival import archive
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.failed_writes import rollback_failed_writes
from airflow_provider.services.savepoint import delete_savepoint, savepoints
from airflow_provider.table import snapshot
from airflow_provider.table.timeline.instant import Action
from tests.real_hudi.in_turn.readers import difference
from tests.real_hudi.in_turn.shared_table import SCHEMA, SharedTable, rows
from tests.real_hudi.jvm import Session

CLEANS_SOON = {"hoodie.clean.commits.retained": "1"}
ARCHIVES_SOON = {
    **CLEANS_SOON,
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "1",
}


@pytest.fixture
def shared(hudi: Session, location: Path) -> SharedTable:
    """A table that the JVM has made, and to which this package has written."""
    shared = SharedTable.of_the_jvm(hudi, location, rows(range(20), 0))
    shared.ours(rows(range(5, 15), 100, 2))
    return shared


def both_go_on(shared: SharedTable) -> None:
    """Write by this package, then by the JVM, then by this package."""
    shared.ours(rows(range(9, 13), 6000, 60))
    shared.check()
    shared.theirs(rows(range(11, 15), 7000, 70))
    shared.ours(rows(range(12, 14), 8000, 80))
    shared.check()


def newest(shared: SharedTable) -> str:
    return shared.table.timeline().commits()[-1].requested_time


def test_the_jvm_archives_our_newest_commit(shared: SharedTable) -> None:
    ours = newest(shared)
    for turn in range(3, 12):
        shared.theirs(rows(range(100 + turn, 102 + turn), 10, turn), options=ARCHIVES_SOON)
        if all(each.requested_time != ours for each in shared.table.timeline().commits()):
            break
    else:
        pytest.fail("the JVM has not archived our commit")
    shared.check()
    both_go_on(shared)
    clean(shared.table, Retention("KEEP_LATEST_COMMITS", 1))
    archive(shared.table, keep_min=2, keep_max=3)
    shared.check()
    shared.theirs(rows(range(4, 9), 9000, 90), options=ARCHIVES_SOON)
    shared.check()


def test_the_jvm_rolls_its_newest_commit_back(shared: SharedTable) -> None:
    before = dict(shared.model)
    shared.theirs(rows(range(8, 22), 300, 3))
    shared.sql(f"call rollback_to_instant(table => '{{t}}', instant_time => '{newest(shared)}')")
    shared.model = before
    shared.check()
    both_go_on(shared)


def test_the_jvm_rolls_our_newest_commit_back(shared: SharedTable) -> None:
    before = dict(shared.model)
    shared.ours(rows(range(8, 22), 300, 3))
    shared.sql(f"call rollback_to_instant(table => '{{t}}', instant_time => '{newest(shared)}')")
    shared.model = before
    shared.check()
    both_go_on(shared)
    rollback_failed_writes(shared.table)
    shared.check()


def test_the_jvm_restores_to_its_savepoint_of_our_commit(shared: SharedTable) -> None:
    ours = newest(shared)
    shared.sql(f"call create_savepoint(table => '{{t}}', commit_time => '{ours}')")
    assert [each.instant for each in savepoints(shared.table)] == [ours]
    then = dict(shared.model)
    for turn in range(3, 6):
        shared.ours(rows(range(8, 22), 100 * turn, turn))
    clean(shared.table, Retention("KEEP_LATEST_COMMITS", 1))
    shared.check()
    # The JVM itself reads nothing from before the commit that a clean retains, savepoint or not.
    kept = snapshot(shared.table, ours).to_table().to_pylist()
    assert not difference(kept, then.values(), SCHEMA.names)
    shared.sql(f"call rollback_to_savepoint(table => '{{t}}', instant_time => '{ours}')")
    shared.model = then
    shared.check()
    both_go_on(shared)
    delete_savepoint(shared.table, ours)
    both_go_on(shared)


def test_the_jvm_cleans_what_a_lease_of_ours_keeps(shared: SharedTable) -> None:
    """The JVM ignores leases: the error of a long reader names the clean that deleted its files."""
    with reader_lease(shared.table) as lease:
        for turn in range(3, 6):
            shared.theirs(rows(range(20), 100 * turn, turn), options=CLEANS_SOON)
        cleans = [each for each in shared.table.timeline().completed() if each.action is Action.CLEAN]
        with pytest.raises(TableServiceError, match="|".join(each.requested_time for each in cleans)):
            lease.check()
    shared.check()


@pytest.mark.parametrize(
    "statement",
    [
        "call drop_partition(table => '{t}', partition => 'part=p1')",
        "alter table {t} drop partition (part = 'p1')",
        "delete from {t} where part = 'p1'",
    ],
    ids=["procedure", "alter table", "delete"],
)
def test_the_jvm_drops_a_partition(shared: SharedTable, statement: str) -> None:
    shared.sql(statement)
    shared.drop_partitions(["p1"])
    shared.check()
    both_go_on(shared)
    clean(shared.table, Retention("KEEP_LATEST_COMMITS", 1))
    shared.check()


def test_the_jvm_overwrites_the_table(shared: SharedTable) -> None:
    shared.theirs(rows(range(50, 60), 300, 3), "insert_overwrite_table")
    shared.check()
    both_go_on(shared)


def test_the_jvm_truncates_the_table(shared: SharedTable) -> None:
    """The JVM removes everything, and makes the table anew, without a schema until it writes."""
    shared.sql("truncate table {t}")
    shared.model.clear()
    with pytest.raises(UnsupportedTableError, match="no schema"):
        shared.ours(rows(range(5), 0))
    shared.theirs(rows(range(5), 0))
    both_go_on(shared)
