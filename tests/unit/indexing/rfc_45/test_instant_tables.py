"""The two instant tables in the text of RFC-45: both computed, and the larger one executed."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import IndexCatchUpTimeoutError
from airflow_provider.indexing.catch_up import base_instant, instants_to_catch_up
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import Action, Instant, State
from tests.unit.indexing.jvm import JvmWrite, SharedLock, rows
from tests.unit.indexing.under_shared_lock import A_MOMENT, ALL, indexed_keys, run, schedule
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


def instant_of(number: int, action: Action, state: str) -> Instant:
    requested = f"2026010100000{number:02d}00"
    reached = {"C": State.COMPLETED, "I": State.INFLIGHT, "R": State.REQUESTED}[state]
    completed = f"2026010100000{number:02d}50" if state == "C" else None
    return Instant(requested, action, reached, completed)


def numbers(instants: list[Instant]) -> list[int]:
    return [int(each.requested_time[13:15]) for each in instants]


def test_the_instant_table_of_the_multi_writer_scenario(table: HudiTable) -> None:
    # t0 is the last completed instant, t1 and t2 are two inflight writers, the request comes at t3.
    writes = [(0, "C"), (1, "I"), (2, "I")]
    timeline = Timeline(table.storage, [instant_of(n, Action.COMMIT, state) for n, state in writes])
    t3 = instant_of(3, Action.INDEXING, "R").requested_time
    base = base_instant(timeline)
    assert base == instant_of(0, Action.COMMIT, "C").requested_time
    assert numbers(instants_to_catch_up(timeline, base, t3)) == [1, 2]


def test_the_instant_table_of_case_5_with_writes_only(table: HudiTable) -> None:
    states = dict.fromkeys(range(1, 9), "C") | {5: "I"}
    timeline = Timeline(table.storage, [instant_of(n, Action.COMMIT, s) for n, s in states.items()])
    base = base_instant(timeline)
    assert base == instant_of(4, Action.COMMIT, "C").requested_time
    plan = instant_of(9, Action.INDEXING, "R").requested_time
    assert numbers(instants_to_catch_up(timeline, base, plan)) == [5, 6, 7, 8]


def test_the_instant_table_of_case_5_with_table_services(table: HudiTable) -> None:
    write, compaction = Action.DELTA_COMMIT, Action.COMPACTION
    actions = [write, write, write, Action.CLEAN, write, write, compaction, write, Action.INDEXING, write]
    instants = [
        instant_of(number, action, state)
        for number, (action, state) in enumerate(zip(actions, "CCCICCRCRI", strict=True), 1)
    ]
    timeline = Timeline(table.storage, instants)
    base = base_instant(timeline)
    assert base == instant_of(6, write, "C").requested_time
    plan = instant_of(9, Action.INDEXING, "R").requested_time
    assert numbers(instants_to_catch_up(timeline, base, plan)) == [4, 7, 8]


def test_the_instant_table_of_case_5_with_table_services_played(table: HudiTable) -> None:
    old = table.view().all_base_files()[0]
    ingest_arrow(table, rows([1, 2, 3], 2.0))
    clean4 = JvmWrite(table, Action.CLEAN).begin()
    ingest_arrow(table, rows([5]))
    ingest_arrow(table, rows([6]))
    dc6 = table.timeline().commits()[-1].requested_time
    compact7 = JvmWrite(table, Action.CLUSTERING)
    ingest_arrow(table, rows([8]))
    indexing9 = schedule(table)
    dc10 = JvmWrite(table).begin()
    plan = table.timeline().plan(Instant(indexing9, Action.INDEXING, State.REQUESTED))
    assert plan is not None
    assert plan["indexPartitionInfos"][0]["indexUptoInstant"] == dc6
    with pytest.raises(IndexCatchUpTimeoutError) as timed_out:
        run(table, indexing9, A_MOMENT)
    assert timed_out.value.details["pending"] == [clean4.instant, compact7.instant]
    clean4.clean(old)
    with pytest.raises(IndexCatchUpTimeoutError) as timed_out:
        run(table, indexing9, A_MOMENT)
    assert timed_out.value.details["pending"] == [compact7.instant]
    compact7.begin().cluster_nothing()
    run(table, indexing9)
    assert_indexes_equal_a_rebuild(table, ALL)
    dc10.upsert([10])
    ingest_arrow(HudiTable.open(table.location), rows([11]), lock=SharedLock(table.location))
    assert_indexes_equal_a_rebuild(table, ALL)
    assert indexed_keys(table) == {1, 2, 3, 5, 6, 8, 10, 11}
