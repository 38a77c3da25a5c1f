"""Any history of locks, compared with a model that has one rule: first come, first served."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider.exceptions import NoSuchLockError
from airflow_provider.metastore import LockComponent, LockState, LockType, open_metastore
from tests.unit.metastore.locks.test_locks import HELD, WAITS
from tests.unit.metastore.transactions.test_model import MEMORY

PLACES = [
    ("lake",),
    ("lake", "flights"),
    ("lake", "flights", "month=1"),
    ("lake", "flights", "month=2"),
    ("lake", "trains"),
]
components = st.builds(
    lambda type_, place: LockComponent(type_, *place), st.sampled_from(HELD), st.sampled_from(PLACES)
)


@dataclass
class Held:
    asked: list[LockComponent]
    txn_id: int | None
    is_acquired: bool = False


def place(component: LockComponent) -> list[str]:
    return [part for part in (component.database, component.table, component.partition) if part]


def exclude(one: LockComponent, other: LockComponent) -> bool:
    overlap = all(a == b for a, b in zip(place(one), place(other), strict=False))
    if not overlap or not WAITS[one.type][HELD.index(other.type)]:
        return False
    for reading, exclusive in ((one, other), (other, one)):
        types = (reading.type, exclusive.type)
        if types == (LockType.SHARED_READ, LockType.EXCLUSIVE) and not reading.table and exclusive.table:
            return False
    return True


class LockHistory(RuleBasedStateMachine):
    """The order of arrival alone decides which locks are held."""

    new_database: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        shutil.copy(self.new_database, self.folder / "metastore.db")
        self.metastore = open_metastore(f"sqlite:///{self.folder}/metastore.db")
        self.txns = [self.metastore.open_txn("me", "here") for _ in range(2)]
        self.locks: dict[int, Held] = {}
        self.last_id = 0

    def teardown(self) -> None:
        self.metastore.close()
        shutil.rmtree(self.folder)

    def must_wait(self, lock_id: int, held: Held) -> bool:
        return any(
            exclude(mine, theirs)
            for earlier, other in self.locks.items()
            if earlier < lock_id and (held.txn_id is None or held.txn_id != other.txn_id)
            for mine in held.asked
            for theirs in other.asked
        )

    @rule(
        asked=st.lists(components, min_size=1, max_size=2),
        txn=st.sampled_from([None, None, 0, 1]),
        wait=st.sampled_from([True, True, False]),
    )
    def lock(self, asked: list[LockComponent], txn: int | None, wait: bool) -> None:
        txn_id = self.txns[txn] if txn is not None and txn < len(self.txns) else None
        held = Held(asked, txn_id)
        response = self.metastore.lock(asked, "me", "here", txn_id=txn_id, wait=wait)
        self.last_id += 1
        assert response.lock_id == self.last_id
        must_wait = self.must_wait(self.last_id, held)
        held.is_acquired = not must_wait
        refused = must_wait and not wait
        assert (response.state is LockState.NOT_ACQUIRED) == refused
        assert (response.state is LockState.ACQUIRED) == held.is_acquired
        if not refused:
            self.locks[self.last_id] = held

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def check(self, data: st.DataObject) -> None:
        lock_id = data.draw(st.sampled_from(sorted(self.locks)))
        held = self.locks[lock_id]
        held.is_acquired = held.is_acquired or not self.must_wait(lock_id, held)
        state = self.metastore.check_lock(lock_id)
        assert (state is LockState.ACQUIRED) == held.is_acquired

    @precondition(lambda self: any(held.txn_id is None for held in self.locks.values()))
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        free = sorted(lock_id for lock_id, held in self.locks.items() if held.txn_id is None)
        lock_id = data.draw(st.sampled_from(free))
        self.metastore.unlock(lock_id)
        del self.locks[lock_id]
        with pytest.raises(NoSuchLockError):
            self.metastore.check_lock(lock_id)

    @precondition(lambda self: self.txns)
    @rule(commit=st.booleans())
    def end_txn(self, commit: bool) -> None:
        txn_id = self.txns.pop()
        (self.metastore.commit_txn if commit else self.metastore.abort_txn)(txn_id)
        self.locks = {lock_id: held for lock_id, held in self.locks.items() if held.txn_id != txn_id}

    @invariant()
    def what_is_shown_is_what_there_is(self) -> None:
        shown = self.metastore.show_locks()
        assert [info.component for info in shown] == [
            component for _, held in sorted(self.locks.items()) for component in held.asked
        ]
        held_now = [info for info in shown if info.state is LockState.ACQUIRED]
        assert {info.lock_id for info in held_now} == {
            lock_id for lock_id, held in self.locks.items() if held.is_acquired
        }
        for one in held_now:
            for other in held_now:
                is_own = one.txn_id is not None and one.txn_id == other.txn_id
                if one.lock_id != other.lock_id and not is_own:
                    assert not exclude(one.component, other.component)


@pytest.fixture(autouse=True)
def _begin_with(new_database: Path) -> None:
    LockHistory.new_database = new_database


class TestLockHistory(LockHistory.TestCase):
    settings = settings(max_examples=max(1, settings().max_examples // 12), stateful_step_count=25)
