"""Transactions around several tables whose process died: the next process ends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.concurrency.conflicts.open_transactions import instants_of_open_transactions
from airflow_provider.concurrency.transactions.recovery import recover_transactions
from airflow_provider.concurrency.transactions.transactions import (
    abort_transaction,
    commit_transaction,
    settle_transactions,
)
from airflow_provider.metastore import TxnState, open_metastore
from airflow_provider.table.storage.storage import Storage
from tests.unit.concurrency.transactions.transactional_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


class TestRecovery:
    """Recovery after a process has died at any step."""

    def begun(self, lake: Lake) -> int:
        lake.write("trips", {1: 10})
        txn_id = lake.begin(timeout_seconds=0.001)
        lake.write("trips", {1: 11}, txn_id)
        lake.write("riders", {7: 70}, txn_id)
        return txn_id

    def test_one_whose_commit_was_not_asked_for_is_undone(self, lake: Lake) -> None:
        txn_id = self.begun(lake)
        (recovered,) = recover_transactions(lake.metastore)
        assert (recovered.txn_id, recovered.committed) == (txn_id, False)
        assert (lake.plain("trips"), lake.plain("riders")) == ({1: 10}, {})
        lake.check_nothing_is_left()

    def test_one_whose_commit_was_asked_for_is_committed(self, lake: Lake) -> None:
        txn_id = self.begun(lake)
        lake.metastore.request_commit(txn_id)
        (recovered,) = recover_transactions(lake.metastore)
        assert (recovered.txn_id, recovered.committed) == (txn_id, True)
        assert (lake.seen("trips"), lake.seen("riders")) == ({1: 11}, {7: 70})
        assert [p.values for p in lake.metastore.get_partitions("lake", "riders")] == [("sf",)]
        lake.check_nothing_is_left()

    def test_a_timeout_of_its_own_counts(self, lake: Lake) -> None:
        patient, usual = lake.begin(timeout_seconds=3600), lake.begin()
        (recovered,) = recover_transactions(lake.metastore, timeout_seconds=0)
        assert recovered.txn_id == usual
        assert lake.state(patient) is TxnState.OPEN

    @pytest.mark.parametrize("end", ["commit_txn", "abort_txn"])
    def test_the_next_writer_settles_what_was_left_of_an_end(self, lake: Lake, end: str) -> None:
        txn_id = self.begun(lake)
        getattr(lake.metastore, end)(txn_id)
        assert set(instants_of_open_transactions(lake.tables["riders"].storage).values()) == {txn_id}
        for table in lake.tables.values():
            settle_transactions(lake.metastore, table)
        expected: tuple[dict[int, int], dict[int, int]] = ({1: 10}, {})
        if end == "commit_txn":
            expected = ({1: 11}, {7: 70})
        assert (lake.plain("trips"), lake.plain("riders")) == expected
        lake.check_nothing_is_left()

    @pytest.mark.parametrize("step", range(1, 40, 3))
    @pytest.mark.parametrize("end", [commit_transaction, abort_transaction])
    def test_killed_at_any_step_of_its_end(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch, end: Callable[..., int], step: int
    ) -> None:
        txn_id = self.begun(lake)
        steps = 0

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: Storage, *arguments: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps >= step:
                    raise Killed
                return real(self, *arguments)

            return call

        with monkeypatch.context() as patched:
            for name in ("put", "put_if_absent", "move_if_absent", "delete"):
                patched.setattr(Storage, name, dying(getattr(Storage, name)))
            with suppress(Killed):
                end(lake.metastore, txn_id)
        recover_transactions(lake.metastore)
        for table in lake.tables.values():
            settle_transactions(lake.metastore, table)
        committed = lake.state(txn_id) is TxnState.COMMITTED
        assert committed is (end is commit_transaction)
        expected = ({1: 11}, {7: 70}) if committed else ({1: 10}, {})
        assert (lake.seen("trips"), lake.seen("riders")) == expected
        assert (lake.plain("trips"), lake.plain("riders")) == expected
        for table in lake.tables.values():
            assert instants_of_open_transactions(table.storage) == {}

    def test_a_transaction_of_another_metastore_is_left_alone(self, lake: Lake, tmp_path: Path) -> None:
        self.begun(lake)
        other = open_metastore(f"sqlite:///{tmp_path}/other.db")
        settle_transactions(other, lake.tables["trips"])
        for _ in range(3):
            other.abort_txn(other.open_txn("me", "here"))
        settle_transactions(other, lake.tables["trips"])
        assert lake.plain("trips") == {1: 11}


class Killed(BaseException):
    """Raised where the process dies."""
