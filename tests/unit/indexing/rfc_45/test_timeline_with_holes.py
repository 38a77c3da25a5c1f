"""RFC-45's error case 5: the data timeline has a hole, because commit C5 of another Hudi writer is in flight.

After each test the indexes equal a rebuild (C6).
"""

from __future__ import annotations

import logging

import pytest

from airflow_provider.exceptions import IndexCatchUpTimeoutError
from airflow_provider.indexing.base_files import IndexBuild, build_in_process
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.indexing.jvm import JvmWrite, rows
from tests.unit.indexing.under_shared_lock import A_MOMENT, ALL, begun, indexed_keys, run, schedule, used
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


def test_c5_is_inflight(table: HudiTable) -> None:
    for number in (2, 3, 4):
        ingest_arrow(table, rows([number * 10]))
    c4 = table.timeline().commits()[-1].requested_time
    c5 = JvmWrite(table).begin()
    c5.beat()
    for number in (6, 7, 8):
        ingest_arrow(table, rows([number * 10]))
    instant = schedule(table)
    plan = table.timeline().plan(Instant(instant, Action.INDEXING, State.REQUESTED))
    assert plan is not None
    assert {info["indexUptoInstant"] for info in plan["indexPartitionInfos"]} == {c4}
    with pytest.raises(IndexCatchUpTimeoutError, match=f"commit {c5.instant}") as timed_out:
        run(table, instant, A_MOMENT)
    assert timed_out.value.details["pending"] == [c5.instant]
    assert used(table) == set()
    c5.upsert([50])
    result = run(table, instant)
    assert result.caught_up == (c5.instant,)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 20, 30, 40, 50, 60, 70, 80}


def test_c5_completes_while_it_is_waited_for(table: HudiTable, caplog: pytest.LogCaptureFixture) -> None:
    c5 = JvmWrite(table).begin()
    c5.beat()
    ingest_arrow(table, rows([60]))
    instant = schedule(table)

    class Completes(logging.Handler):
        """Completes C5 once the log says that the run waits for it."""

        def emit(self, record: logging.LogRecord) -> None:
            told = record.getMessage()
            if f"has 1 instants left to catch up: commit {c5.instant}" in told and not self.filters:
                self.addFilter(lambda _: False)
                c5.upsert([50])

    handler, logger = Completes(), logging.getLogger("airflow_provider.indexing.catch_up")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, logger.name):
            assert run(table, instant).caught_up == (c5.instant,)
    finally:
        logger.removeHandler(handler)
    assert_indexes_equal_a_rebuild(table, ALL)
    assert 50 in indexed_keys(table)


def test_c5_completes_while_the_base_files_are_built(table: HudiTable) -> None:
    c5 = JvmWrite(table).begin()
    c5.beat()
    ingest_arrow(table, rows([60]))
    instant = schedule(table)

    def build(planned: IndexBuild) -> list[WriteStat]:
        stats = build_in_process(planned)
        c5.upsert([50])
        return stats

    assert run(table, instant, build=build).caught_up == (c5.instant,)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_c5_is_rolled_back(table: HudiTable) -> None:
    c5 = JvmWrite(table).begin()
    c5.beat()
    ingest_arrow(table, rows([60]))
    instant = schedule(table)
    c5.roll_back()
    run(table, instant)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_a_second_run_goes_on_where_the_first_timed_out(table: HudiTable) -> None:
    c5 = JvmWrite(table).begin()
    instant = schedule(table)
    with pytest.raises(IndexCatchUpTimeoutError):
        run(table, instant, A_MOMENT)
    c5.upsert([50])

    def builds_again(planned: IndexBuild) -> list[WriteStat]:
        raise AssertionError("the base files are there")

    run(table, instant, build=builds_again)
    assert_indexes_equal_a_rebuild(table, ALL)


def test_the_hole_is_ours_and_needs_no_waiting(table: HudiTable) -> None:
    commit = begun(table, [50])
    ingest_arrow(table, rows([60]))
    instant = schedule(table)
    run(table, instant, A_MOMENT)  # complete, though C5 is in flight: C5 must log, or cannot commit
    assert_indexes_equal_a_rebuild(table, ALL)
    commit()
    assert_indexes_equal_a_rebuild(table, ALL)
    assert 50 in indexed_keys(table)
