"""Consumers that poll at any time, over any history: they lose and repeat nothing, as promised."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider.table.reading.incremental import Increment, Order, increment, movable_checkpoint
from tests.unit.table.histories import History, Key, Row, Write, rows_of

keys = st.tuples(st.sampled_from("ab"), st.integers(0, 5))
batches = st.dictionaries(keys, st.booleans(), min_size=1, max_size=4)
positions = st.integers(0, 5)


class Consumer:
    """A consumer with a checkpoint, and a copy of the table from the rows that it read."""

    def __init__(self, history: History, order: Order) -> None:
        self.history = history
        self.order = order
        self.checkpoint: str | None = None
        self.copy: dict[Key, Row] = {}
        self.read: list[str] = []
        self.windows: list[Increment] = []

    def poll(self) -> None:
        history, start = self.history, self.checkpoint
        if self.order is Order.REQUESTED:
            movable = movable_checkpoint(history.table, start)
        found = increment(history.table, start, order=self.order)
        rows = rows_of(found.scanner(meta_columns=True).to_table())
        told = {instant.requested_time for instant in found.commits}
        window = [write for write in history.commits if write.instant in told]
        assert len(window) == len(told), "a commit was told that does not exist"
        assert found.start == start
        assert start is None or (found.end is not None and found.end >= start)

        {Order.COMPLETION: self._exactly_once, Order.FENCED: self._in_request_order}.get(
            self.order, self._at_least_once
        )(found, window)
        if self.order is Order.REQUESTED:
            assert movable == found.end
        shown = self._shown(found)
        assert rows == history.changes(shown, window)
        if self.order is Order.COMPLETION and window and start is not None:
            assert history.hudi_rs_changes(start, found.end or "") == rows

        self.copy.update(rows)
        self.read += [write.instant for write in window]
        self.checkpoint = found.end
        self.windows.append(found)

    def _shown(self, found: Increment) -> list[Write]:
        """The commits that the window's rows come from."""
        if self.order is Order.REQUESTED or found.end is None:
            return self.history.commits
        if self.order is Order.COMPLETION:
            return self.history.completed_by(found.end)
        return [write for write in self.history.commits if write.instant <= found.end]

    def _exactly_once(self, found: Increment, window: list[Write]) -> None:
        start = found.start or ""
        assert window == [write for write in self.history.commits if write.completion_time > start]
        assert not {write.instant for write in window} & set(self.read)
        assert found.held_by is None

    def _in_request_order(self, found: Increment, window: list[Write]) -> None:
        end, start = found.end or "", found.start or ""
        assert {write.instant for write in window} == {
            write.instant for write in self.history.commits if start < write.instant <= end
        }
        assert not {write.instant for write in window} & set(self.read)
        self._nothing_pending_before(found)

    def _at_least_once(self, found: Increment, window: list[Write]) -> None:
        start = found.start or ""
        assert {write.instant for write in window} == {
            write.instant for write in self.history.commits if write.instant > start
        }
        self._nothing_pending_before(found)
        passed = {write.instant for write in self.history.commits if write.instant <= (found.end or "")}
        assert passed <= set(self.read) | {write.instant for write in window} | self._rewrites()

    def _rewrites(self) -> set[str]:
        # A clustering reports no rows, so it holds no window and may complete behind a checkpoint.
        return {write.instant for write in self.history.commits if write.is_rewrite}

    def _nothing_pending_before(self, found: Increment) -> None:
        pending = sorted(write.instant for write in self.history.in_flight if not write.is_rewrite)
        end = found.end or ""
        assert not [instant for instant in pending if instant <= end]
        withheld = sorted(write.instant for write in self.history.commits if write.instant > end)
        assert (found.held_by is not None) == bool(withheld)
        if withheld:
            assert found.held_by is not None
            assert found.held_by.requested_time == pending[0]
            # A window holds back only commits that are later than the oldest one in flight, that were merged
            # on such a commit, or that wrote where it had removed rows.
            merged = {write.instant for write in self.history.commits if write.replaced}
            merged |= {write.instant for write in self.history.commits if self._wrote_after_a_delete(write)}
            assert withheld[0] > pending[0] or withheld[0] in merged

    def _wrote_after_a_delete(self, write: Write) -> bool:
        return any(
            other.instant > write.instant
            and other.completion_time < write.completion_time
            and (other.overwrites is not None or None in other.rows.values())
            for other in self.history.commits
        )

    def caught_up(self) -> None:
        """Check that the windows had every change: the copy equals the table, except deleted rows."""
        assert not self.history.in_flight
        self.poll()
        commits = {write.instant for write in self.history.commits}
        missed = commits - set(self.read)
        assert missed <= (self._rewrites() if self.order is not Order.COMPLETION else set())
        state = self.history.state(self.history.commits)
        assert {key: self.copy.get(key) for key in state} == state


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.history = History(Path(self._folder.name))
        self.consumers = [Consumer(self.history, order) for order in Order]
        self.version = 0

    @initialize(rows=batches)
    def first_commit(self, rows: dict[Key, bool]) -> None:
        self.history.commit(self._values(rows))

    @rule(rows=batches, requested=st.booleans())
    def begin(self, rows: dict[Key, bool], requested: bool) -> None:
        self.history.begin(self._values(rows), requested=requested)

    @rule(partition=st.sampled_from("ab"), numbers=st.sets(st.integers(0, 5), min_size=1, max_size=3))
    def begin_overwrite(self, partition: str, numbers: set[int]) -> None:
        rows = self._values({(partition, number): True for number in numbers})
        self.history.begin(rows, overwrites=partition)

    @rule(partition=st.sampled_from("ab"))
    def begin_clustering(self, partition: str) -> None:
        self.history.begin_clustering(f"p={partition}")

    @rule(rows=batches)
    def commit(self, rows: dict[Key, bool]) -> None:
        self.history.commit(self._values(rows))

    @precondition(lambda self: self.history.in_flight)
    @rule(position=positions)
    def complete(self, position: int) -> None:
        self.history.complete(self.history.in_flight[position % len(self.history.in_flight)])

    @precondition(lambda self: self.history.in_flight)
    @rule(position=positions)
    def roll_back(self, position: int) -> None:
        self.history.roll_back(self.history.in_flight[position % len(self.history.in_flight)])

    @precondition(lambda self: any(write.is_rewrite for write in self.history.commits))
    @rule(position=positions)
    def revert(self, position: int) -> None:
        rewrites = [write for write in self.history.commits if write.is_rewrite]
        self.history.revert(rewrites[position % len(rewrites)])

    @rule(consumer=st.integers(0, 2))
    def poll(self, consumer: int) -> None:
        self.consumers[consumer].poll()

    @invariant()
    def the_model_is_the_table(self) -> None:
        rows = {key: row for content in self.history.live.values() for key, row in content.rows.items()}
        assert rows == self.history.state(self.history.commits)

    def teardown(self) -> None:
        try:
            for write in list(self.history.in_flight):
                self.history.complete(write)
            for consumer in self.consumers:
                consumer.caught_up()
            self._windows_again(self.consumers[0].windows)
        finally:
            self._folder.cleanup()

    def _windows_again(self, windows: list[Increment]) -> None:
        """Check that a window has the same rows whenever it is read."""
        for window in windows:
            if window.start is None or window.end is None:
                continue
            inside = [w for w in self.history.commits if window.start < w.completion_time <= window.end]
            expected = self.history.changes(self.history.completed_by(window.end), inside)
            again = increment(self.history.table, window.start, end=window.end)
            assert rows_of(again.scanner(meta_columns=True).to_table()) == expected

    def _values(self, rows: dict[Key, bool]) -> dict[Key, str | None]:
        self.version += 1
        return {key: f"{self.version}" if keep else None for key, keep in rows.items()}


TestHistories = Histories.TestCase
