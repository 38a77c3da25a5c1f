"""Plans of table services: the pending ones, their file groups, and the failures that stop a clustering."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider import metrics
from airflow_provider.concurrency import CommitLog, ServicePlan, begin_planned, rollback, schedule
from airflow_provider.concurrency.commit.concurrent_changes import Moment
from airflow_provider.concurrency.log.log_entry import Plan, Savepoint
from airflow_provider.concurrency.plans.scheduling import _is_outdated, pending_plans, planned_file_groups
from airflow_provider.concurrency.plans.service_failures import (
    MAX_FAILURES,
    Service,
    check_not_stopped,
    clear_failures,
    failures,
    failures_in_a_row,
    log_head,
    stopping_itself,
)
from airflow_provider.exceptions import (
    CommitError,
    CorruptTableError,
    InvalidInputError,
    NoSuchInstantError,
    ServiceStoppedError,
    WriteConflictError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metrics import Measurement
from airflow_provider.services.savepoint import create_savepoint
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.instant import Action
from tests.unit.concurrency.other_hudi_writers.another_hudi_writer import Jvm, create_trips

SCHEMA = pa.schema({"id": pa.int64()})
A, B = FileGroupId("", "a-0"), FileGroupId("", "b-0")


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"])


def insert(table: HudiTable, key: int) -> None:
    ingest_arrow(table, pa.table({"id": [key]}, schema=SCHEMA), "bulk_insert")


def planned(
    table: HudiTable, *groups: FileGroupId, action: Action = Action.CLUSTERING, priority: int = 7
) -> str:
    instant = schedule(
        table,
        lambda view, taken: ServicePlan(frozenset(groups), b"plan"),
        action=action,
        operation=action.upper(),
        priority=priority,
    )
    assert instant is not None
    return instant


def held(table: HudiTable) -> frozenset[FileGroupId]:
    return planned_file_groups(table.storage, CommitLog(table.storage), table.timeline())


class TestPending:
    def test_they_are_of_one_action_and_the_oldest_comes_first(self, table: HudiTable) -> None:
        assert pending_plans(table, Action.CLUSTERING) == []
        insert(table, 1)
        first, clean, second = planned(table, A), planned(table, action=Action.CLEAN), planned(table, B)
        insert(table, 2)
        assert pending_plans(table, Action.CLUSTERING) == [first, second]
        assert pending_plans(table, Action.CLEAN) == [clean]
        rollback(table, first)
        assert pending_plans(table, Action.CLUSTERING) == [second]

    def test_one_that_somebody_carries_out_is_not_idle(self, table: HudiTable) -> None:
        carried_out, idle = planned(table, A), planned(table, B)
        with begin_planned(table, carried_out):
            assert pending_plans(table, Action.CLUSTERING) == [carried_out, idle]
            assert pending_plans(table, Action.CLUSTERING, idle=True) == [idle]

    def test_all_of_them_hold_their_file_groups_until_they_end(self, table: HudiTable) -> None:
        assert held(table) == frozenset()
        first = planned(table, A)
        insert(table, 1)
        planned(table, B)
        assert held(table) == {A, B}
        rollback(table, first)
        assert held(table) == {B}

    def test_no_plan_names_what_another_holds(self, table: HudiTable) -> None:
        planned(table, A)
        with pytest.raises(InvalidInputError, match="names file group /a-0, which another") as caught:
            planned(table, A, B)
        assert caught.value.details == {"file_groups": [["", "a-0"]]}

    def test_the_entry_says_what_was_planned_and_by_which_priority(self, table: HudiTable) -> None:
        instant = planned(table, A, priority=123)
        entry = CommitLog(table.storage).newest()
        assert isinstance(entry, Plan)
        assert (entry.instant, entry.file_groups, entry.priority) == (instant, {A}, 123)
        assert not entry.on_metadata_table
        assert entry.metadata_path is not None


class TestOutdated:
    @pytest.fixture
    def at(self, table: HudiTable) -> Moment:
        insert(table, 1)
        return Moment.now(table.storage)

    def test_a_plan_is_made_anew_where_others_have_claimed_what_it_names(
        self, table: HudiTable, at: Moment
    ) -> None:
        planned(table, A)
        now = Moment.now(table.storage)
        assert _is_outdated(now, at, ServicePlan(frozenset({A}), b""), False)
        assert not _is_outdated(now, at, ServicePlan(frozenset({B}), b""), False)
        assert _is_outdated(now, at, None, False), "there was nothing to do"

    def test_a_plan_is_made_anew_behind_a_savepoint(self, table: HudiTable, at: Moment) -> None:
        create_savepoint(table)
        now = Moment.now(table.storage)
        assert isinstance(now.newest, Savepoint)
        assert _is_outdated(now, at, ServicePlan(frozenset({B}), b""), False)

    def test_one_of_the_metadata_table_is_outdated_by_any_entry_and_not_by_none(
        self, table: HudiTable, at: Moment
    ) -> None:
        plan = ServicePlan(frozenset({B}), b"")
        assert not _is_outdated(at, at, plan, True)
        insert(table, 2)
        now = Moment.now(table.storage)
        assert _is_outdated(now, at, plan, True)
        assert not _is_outdated(now, at, plan, False)

    def test_and_by_a_commit_of_another_hudi_writer_that_no_entry_names(self, tmp_path: Path) -> None:
        trips = create_trips(str(tmp_path / "trips"))
        at, plan = Moment.now(trips.storage), ServicePlan(frozenset({B}), b"")
        assert len(at.timeline.commits()) == 1  # the plan is based on that moment
        Jvm(trips).upsert({3: 3.0})
        now = Moment.now(trips.storage)
        assert now.sequence == at.sequence
        assert _is_outdated(now, at, plan, True)
        assert not _is_outdated(now, at, plan, False)


class TestFailures:
    def fail(self, table: HudiTable, *groups: FileGroupId) -> str:
        instant = planned(table, *groups)
        rollback(table, instant, reason=f"for the {len(failures_in_a_row(table)) + 1}. time")
        return instant

    def test_it_stops_at_the_failure_that_is_one_too_many_and_tells_the_last(self, table: HudiTable) -> None:
        heard: list[Measurement] = []
        instants = [self.fail(table, A) for _ in range(MAX_FAILURES - 1)]
        check_not_stopped(table, MAX_FAILURES)
        instants.append(self.fail(table, A))
        check_not_stopped(table, None)
        with (
            metrics.listening(heard.append),
            pytest.raises(ServiceStoppedError, match=r"for the 3\. time") as caught,
        ):
            check_not_stopped(table, MAX_FAILURES)
        assert caught.value.details == {"failures": 3, "service": "clustering", "instant": instants[-1]}
        stopped = [each.tags for each in heard if each.name == "services_stopped"]
        assert stopped == [{"table": table.location, "service": Service.CLUSTERING}]
        assert [each.reason for each in failures(table, Service.CLUSTERING)] == [
            f"for the {time}. time" for time in (1, 2, 3)
        ]

    def test_it_goes_on_from_the_moment_at_which_it_was_cleared(self, table: HudiTable) -> None:
        clear_failures(table, Service.CLUSTERING)  # of nothing
        before = self.fail(table, A)
        assert [entry.rolls_back for entry in failures_in_a_row(table)] == [before]
        newest = CommitLog(table.storage).newest()
        clear_failures(table, Service.CLUSTERING)
        assert newest is not None
        assert failures_in_a_row(table) == []
        after = self.fail(table, A)
        assert before < newest.instant < after
        assert [entry.rolls_back for entry in failures_in_a_row(table)] == [after]

    def test_it_goes_on_when_others_have_changed_what_it_was_to_rewrite(self, table: HudiTable) -> None:
        insert(table, 1)
        (group,) = (each.file_group for each in table.view().all_base_files())
        before = self.fail(table, group, A)
        assert [entry.rolls_back for entry in failures_in_a_row(table)] == [before]
        insert(table, 2)
        assert [entry.rolls_back for entry in failures_in_a_row(table)] == [before]
        ingest_arrow(table, pa.table({"id": [1]}, schema=SCHEMA), "upsert")
        insert(table, 3)
        assert failures_in_a_row(table) == []

    def test_failures_of_a_long_time_ago_are_not_looked_for(
        self, table: HudiTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.fail(table, A)
        back = len(list(CommitLog(table.storage).backwards()))
        for entries, found in ((back, 1), (back - 1, 0)):
            monkeypatch.setattr("airflow_provider.concurrency.plans.service_failures._ENTRIES", entries)
            assert len(failures_in_a_row(table)) == found

    def test_the_input_of_a_service_is_another_after_each_commit(self, table: HudiTable) -> None:
        assert log_head(table) == "the table without commits"
        insert(table, 1)
        newest = CommitLog(table.storage).newest()
        assert newest is not None
        assert log_head(table) == f"the table as of {newest.completion_time}"

    @pytest.mark.parametrize(
        ("error", "counts"),
        [
            (CommitError("a file is not there"), True),
            (CorruptTableError("damaged"), True),
            (ZeroDivisionError("a fault"), True),
            (OSError("no space left"), True),
            (WriteConflictError("lost"), False),
            (NoSuchInstantError("a wrong argument"), False),
            (InvalidInputError("a wrong argument"), False),
        ],
        ids=lambda each: type(each).__name__,
    )
    def test_what_another_call_may_get_over_does_not_count(
        self, table: HudiTable, error: Exception, counts: bool
    ) -> None:
        with pytest.raises(type(error)), stopping_itself(table, Service.ARCHIVAL, lambda: "given", 3):
            raise error
        told = [(each.reason, each.input) for each in failures(table, Service.ARCHIVAL)]
        assert told == ([(f"{type(error).__name__}: {error}", "given")] if counts else [])

    def test_an_input_that_cannot_be_read_is_the_same_input_the_next_time(self, table: HudiTable) -> None:
        def unreadable() -> str:
            raise OSError("no answer")

        with (
            pytest.raises(OSError, match="no space"),
            stopping_itself(table, Service.ARCHIVAL, unreadable, 1),
        ):
            raise OSError("no space left")
        with (
            pytest.raises(ServiceStoppedError, match="its input, what cannot be read, has changed"),
            stopping_itself(table, Service.ARCHIVAL, unreadable, 1),
        ):
            pass
