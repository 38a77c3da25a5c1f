"""A write's own transaction ends as the table's timeline says, even if its writer dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.transactions import recover_transactions
from airflow_provider.exceptions import TransactionAbortedError
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.managed import ManagedWrite
from airflow_provider.metastore import Metastore, TxnState
from airflow_provider.table import snapshot
from tests.unit.concurrency.transactions.transactional_lake import Lake, data_of, rows_of
from tests.unit.replication.pair import KINDS, Pair
from tests.unit.replication.tables.test_table_services import cluster

WRITER = """
import os, signal, sys
from airflow_provider.concurrency.write.writer import Writer
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Metastore, open_metastore
from tests.unit.concurrency.transactions.transactional_lake import data_of

def dies(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr({"commit": Writer}.get(sys.argv[2], Metastore), sys.argv[2], dies)
ingest_arrow("lake.trips", data_of({1: 10}), "upsert", metastore=open_metastore(sys.argv[1]))
"""


def killed_at(lake: Lake, step: str) -> int:
    """Write in a process that dies by SIGKILL at a step; return its transaction."""
    url = f"sqlite:///{lake.root}/metastore.db"
    died = subprocess.run([sys.executable, "-c", WRITER, url, step], check=False)
    assert died.returncode == -signal.SIGKILL
    [txn_id] = lake.metastore.timed_out(0.0)
    return txn_id


def seen(lake: Lake, name: str = "trips") -> dict[int, int]:
    """The rows that a reader with a new snapshot sees."""
    valid = lake.metastore.valid_write_id_list("lake", name)
    return rows_of(snapshot(lake.tables[name], valid_write_ids=valid).to_table())


@pytest.mark.parametrize("step", ["record_write", "commit_txn"])
def test_a_writer_that_dies_after_its_commit_has_its_transaction_committed(tmp_path: Path, step: str) -> None:
    lake = Lake(tmp_path)
    txn_id = killed_at(lake, step)
    [recovered] = recover_transactions(lake.metastore, timeout_seconds=0.0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, True)
    assert seen(lake) == {1: 10}
    assert len(lake.metastore.get_partitions("lake", "trips")) == 1


def test_a_writer_that_dies_before_its_commit_has_its_transaction_aborted(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    txn_id = killed_at(lake, "commit")
    [recovered] = recover_transactions(lake.metastore, timeout_seconds=0.0)
    assert (recovered.txn_id, recovered.committed) == (txn_id, False)
    assert not lake.tables["trips"].timeline().pending()
    ingest_arrow("lake.trips", data_of({1: 11}), "upsert", metastore=lake.metastore)
    assert seen(lake) == {1: 11}


class TestAnAbortFromOutside:
    """An administrator aborts a write's transaction without a look at the write's commit."""

    @pytest.fixture(autouse=True)
    def aborts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Abort each write's transaction before the write ends."""
        record = ManagedWrite._record

        def aborted(managed: ManagedWrite, transaction: Any, result: Any) -> None:
            metastore = managed.metastore()
            metastore.abort_txn(transaction.txn_id)
            record(managed, transaction, result)

        monkeypatch.setattr(ManagedWrite, "_record", aborted)

    def test_the_write_is_undone_at_once(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        with pytest.raises(TransactionAbortedError):
            ingest_arrow("lake.trips", data_of({1: 10}), "upsert", metastore=lake.metastore)
        assert rows_of(snapshot(lake.tables["trips"]).to_table()) == seen(lake) == {}

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_commit_on_which_another_one_is_merged_stands(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        pair = Pair(tmp_path, **KINDS[kind])
        lake, trips = pair.lake, pair.lake.tables["trips"]
        abort = Metastore.abort_txn

        def overtaken(metastore: Metastore, txn_id: int) -> int:
            ingest_arrow(trips, data_of({1: 20, 2: 20}), "upsert")
            return abort(metastore, txn_id)

        monkeypatch.setattr(Metastore, "abort_txn", overtaken)
        with pytest.raises(TransactionAbortedError):
            ingest_arrow("lake.trips", data_of({1: 10, 3: 10}), "upsert", metastore=lake.metastore)
        monkeypatch.undo()
        assert lake.metastore.get_txn(1).state is TxnState.ABORTED
        expected = {1: 20, 2: 20} if kind == "non-blocking" else {1: 20, 2: 20, 3: 10}
        assert seen(lake) == rows_of(snapshot(trips).to_table()) == expected
        ingest_arrow("lake.trips", data_of({4: 30}), "upsert", metastore=lake.metastore)
        pair.replicate()
        pair.check_equal()


class TestPredecessors:
    """A write that is merged on a commit of an open transaction commits that transaction before its own."""

    def test_a_snapshot_is_there_at_once_after_a_writer_has_died(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        died = killed_at(lake, "commit_txn")
        ingest_arrow("lake.trips", data_of({1: 20}), "upsert", metastore=lake.metastore)
        assert lake.metastore.get_txn(died).state is TxnState.COMMITTED
        assert seen(lake) == {1: 20}
        events = [each.event_type for each in lake.metastore.next_events(0)]
        assert events.count("INSERT") == events.count("COMMIT_TXN") == 2

    def test_through_a_clustering(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        died = killed_at(lake, "commit_txn")
        cluster(lake.tables["trips"])
        ingest_arrow("lake.trips", data_of({1: 20}), "upsert", metastore=lake.metastore)
        assert lake.metastore.get_txn(died).state is TxnState.COMMITTED
        assert seen(lake) == {1: 20}

    def test_one_that_nothing_was_merged_on_is_left_to_its_writer(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        died = killed_at(lake, "commit_txn")
        ingest_arrow("lake.trips", data_of({100: 20}), "upsert", metastore=lake.metastore)
        assert lake.metastore.get_txn(died).state is TxnState.OPEN
        assert seen(lake) == {100: 20}

    def test_a_writer_finds_its_transaction_committed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake, record = Lake(tmp_path), ManagedWrite._record

        def overtaken(managed: ManagedWrite, transaction: Any, result: Any) -> None:
            monkeypatch.undo()
            ingest_arrow("lake.trips", data_of({1: 20}), "upsert", metastore=lake.metastore)
            record(managed, transaction, result)

        monkeypatch.setattr(ManagedWrite, "_record", overtaken)
        done = ingest_arrow("lake.trips", data_of({1: 10}), "upsert", metastore=lake.metastore)
        assert done["event_id"] == lake.metastore.get_txn(done["txn_id"]).event_id
        assert seen(lake) == {1: 20}
