"""Failover and the way back: nothing is lost, nothing is mixed in, and one side takes writes."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from airflow_provider.exceptions import (
    InvalidInputError,
    ReplicationTargetError,
    TableServiceError,
    TransactionOpenError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import TxnState
from airflow_provider.replication import (
    Replicator,
    abort_failover,
    failover,
    follow_after_promotion,
    promote,
    replication_lag,
)
from airflow_provider.table import HudiTable, increment, snapshot
from tests.unit.concurrency.transactions.transactional_lake import data_of, rows_of
from tests.unit.replication.pair import Pair
from tests.unit.replication.test_killed import KilledError


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10, 100: 5})
    made.replicate()
    return made


def write_to_new_source(pair: Pair, name: str, rows: dict[int, int]) -> None:
    txn = pair.target.open_txn("me", "here")
    write_id = pair.target.allocate_table_write_id(txn, "lake_copy", name)
    result = ingest_arrow(pair.copy_of(name), data_of(rows), "upsert", txn_id=txn, write_id=write_id)
    pair.target.record_write(txn, "lake_copy", name, result["instant"])
    pair.target.commit_txn(txn)


def follow_back(pair: Pair, policy: str = "dr-back") -> None:
    Replicator(pair.policy.reversed(policy), *reversed(pair.sides)).run()


def test_a_planned_failover_loses_nothing_that_is_written_through_it(pair: Pair) -> None:
    written: dict[int, int] = {}
    stopped = threading.Event()

    def write() -> None:
        for number in itertools.count():
            key = 2 + number % 90
            try:
                pair.lake.write("trips", {key: number})
            except ReplicationTargetError:
                stopped.set()
                return
            written[key] = number

    writer = threading.Thread(target=write)
    writer.start()
    while len(written) < 3:
        pair.replicate()
    done = failover(pair.policy, *pair.sides)
    writer.join()
    assert stopped.is_set()
    assert (done.aborted, done.lacking) == ((), ())
    assert rows_of(snapshot(pair.copy_of("trips")).to_table()) == {1: 10, 100: 5, **written}
    pair.check_equal()
    with pytest.raises(ReplicationTargetError, match="dr-back"):
        pair.lake.write("trips", {1: 0})
    write_to_new_source(pair, "trips", {1: 11, 101: 1})
    before = pair.source.get_table("lake", "trips").id
    follow_back(pair)
    pair.check_equal()
    assert pair.source.get_table("lake", "trips").id == before
    assert rows_of(snapshot(pair.lake.tables["trips"]).to_table())[1] == 11


def test_fail_back_copies_only_what_differs(pair: Pair) -> None:
    failover(pair.policy, *pair.sides)
    back = pair.policy.reversed("dr-back")
    assert Replicator(back, *reversed(pair.sides)).run().bytes_copied == 0
    write_to_new_source(pair, "trips", {1: 11})
    failover(back, *reversed(pair.sides))
    pair.check_equal()
    pair.lake.write("trips", {1: 12, 2: 2})
    pair.replicate()
    pair.check_equal()
    assert replication_lag("dr", *pair.sides).events == 0


def test_open_transactions_hold_a_failover_or_are_aborted(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 99}, txn)
    elsewhere = pair.lake.begin()  # without a write in these databases it blocks no failover
    with pytest.raises(TransactionOpenError, match=f"{txn}"):
        failover(pair.policy, *pair.sides, timeout_seconds=0.0)
    abort_failover(pair.policy, *pair.sides)
    pair.lake.write("trips", {101: 1})
    done = failover(pair.policy, *pair.sides, timeout_seconds=0.0, abort_open=True)
    assert done.aborted == (txn,)
    assert pair.source.get_txn(txn).state is TxnState.ABORTED
    assert pair.source.get_txn(elsewhere).state is TxnState.OPEN
    assert pair.rows_of_target("trips") == {1: 10, 100: 5, 101: 1}
    pair.check_equal()


def test_a_transaction_that_was_begun_may_end_before_the_failover(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 99}, txn)
    thread = threading.Timer(0.2, lambda: pair.lake.commit(txn))
    thread.start()
    failover(pair.policy, *pair.sides)
    thread.join()
    assert pair.rows_of_target("trips") == {1: 99, 100: 5}


def test_a_failover_that_was_killed_is_done_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.lake.write("trips", {1: 11})
    for place in ("_end_open", "_open_target", "_follow_back"):
        with monkeypatch.context() as patch:
            patch.setattr(f"airflow_provider.replication.failovers.{place}", _dies)
            with pytest.raises(KilledError):
                failover(pair.policy, *pair.sides)
        takes_writes = [_takes_writes(pair, side) for side in ("source", "target")]
        assert takes_writes != [True, True]
    failover(pair.policy, *pair.sides)
    assert [_takes_writes(pair, side) for side in ("source", "target")] == [False, True]
    failover(pair.policy, *pair.sides)
    with pytest.raises(InvalidInputError, match="failed over already"):
        abort_failover(pair.policy, *pair.sides)
    with pytest.raises(InvalidInputError, match="has failed over"):
        pair.replicate()


def _dies(*_: object) -> None:
    raise KilledError


def _takes_writes(pair: Pair, side: str) -> bool:
    metastore, database = (pair.source, "lake") if side == "source" else (pair.target, "lake_copy")
    try:
        metastore.alter_table(database, "trips", parameters={})
    except TableServiceError:
        return False
    return True


def test_an_unplanned_failover_says_what_is_lacking(pair: Pair) -> None:
    pair.lake.write("riders", {1: 1})
    pair.replicate()
    opened = pair.lake.begin()
    pair.lake.write("trips", {200: 1}, opened)
    pair.replicate()
    pair.lake.write("trips", {1: 11})
    pair.lake.write("riders", {2: 2})
    done = promote(pair.policy, pair.sides[1], source=pair.sides[0])
    assert done.aborted == (opened,)
    assert done.lacking is not None
    assert [each.tables for each in done.lacking] == [{"lake.trips": 3}, {"lake.riders": 2}]
    write_to_new_source(pair, "trips", {1: 12})
    assert pair.rows_of_target("trips") == {1: 12, 100: 5}
    increment(pair.copy_of("trips"), None)

    kept = follow_after_promotion(pair.policy, *pair.sides)
    assert [each.table for each in kept] == ["lake.riders", "lake.trips"]
    assert rows_of(snapshot(HudiTable.open(kept[1].kept_at)).to_table()) == {1: 11, 100: 5}
    assert rows_of(snapshot(HudiTable.open(kept[0].kept_at)).to_table()) == {1: 1, 2: 2}
    pair.check_equal()
    write_to_new_source(pair, "trips", {3: 3})
    write_to_new_source(pair, "riders", {4: 4})
    follow_back(pair)
    pair.check_equal()


def test_a_commit_that_came_half_is_undone_by_a_promotion(pair: Pair) -> None:
    pair.lake.write("trips", {1: 11})

    def step(name: str) -> None:
        if name.startswith("apply COMMIT_TXN"):
            raise KilledError

    with pytest.raises(KilledError):
        pair.replicator(step).run()
    assert pair.rows_of_target("trips") == {1: 11, 100: 5}
    promote(pair.policy, pair.sides[1])
    assert pair.rows_of_target("trips") == {1: 10, 100: 5}
    follow_after_promotion(pair.policy, *pair.sides)
    pair.check_equal()
