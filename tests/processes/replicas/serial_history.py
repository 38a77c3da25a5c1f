"""The history of the notification log, event by event: it has to explain the answer of every read."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from airflow_provider.metastore import EventType, NotificationEvent, ValidWriteIdList
from airflow_provider.metastore.model.hive_json import decode_partition, decode_table, decode_write_id
from tests.processes.replicas.processes import DATABASE, TAG, Read, Reported, shown_partitions, shown_table

_parsed = lru_cache(maxsize=10_000)(ValidWriteIdList.parse)
_FOR_EVER = 2**63


@dataclass
class _States:
    """The states of a table, or of its partitions, each with its first event."""

    since: list[int] = field(default_factory=list)
    shown: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, event_id: int, shown: str) -> None:
        self.shown[shown].append(len(self.since))
        self.since.append(event_id)

    def spans(self, shown: str) -> list[range]:
        """The ranges of events in which the table had this state."""
        ends = [*self.since[1:], _FOR_EVER]
        return [range(self.since[at], ends[at]) for at in self.shown.get(shown, [])]


class _Table:
    """One table's history."""

    def __init__(self) -> None:
        self.itself, self.partitions = _States(), _States()
        self.now = {}
        self.changed_at: list[int] = []
        self.changed_under: list[int] = []
        self.txn_of: dict[int, int] = {}


class SerialHistory:
    """The tables of a database, as of every event.

    :param events: the whole log.
    """

    def __init__(self, events: Iterable[NotificationEvent]) -> None:
        self.last = 0
        self.ended: dict[int, int] = {}
        self.committed: set[int] = set()
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        self.from_memory = 0
        self.tags: Counter[str] = Counter()
        for event in events:
            assert event.event_id == self.last + 1, "a hole in the log"
            self.last = event.event_id
            self._replay(event)

    def check(self, reads: Iterable[Read]) -> None:
        """Check every read of one reader, in the order of the reads.

        In a session the events that explain the answers about a table never go back. So for each answer the
        check takes the first event that explains it and is not before the event of the previous answer.
        """
        needed: defaultdict[str, int] = defaultdict(int)
        explained: defaultdict[str, int] = defaultdict(int)
        for read in reads:
            table, write_ids = self._tables[read.table], _parsed(read.write_ids)
            assert read.own is None or write_ids.is_valid(read.own), f"its own write is not valid: {read}"
            first = self._newest(table, write_ids, read.began)
            if read.own is None:
                # A transaction's own list shows no transaction that was opened after it.
                assert first >= needed[read.table], (
                    f"goes backwards, behind event {needed[read.table]}: {read}"
                )
                needed[read.table] = first
            before = explained[read.table] if read.in_session else 0
            explained[read.table] = self._explain(read, table, first, before)

    def _explain(self, read: Read, table: _Table, first: int, before: int) -> int:
        """The event, from ``first`` on, whose state equals the answer; the state has every valid change.

        :param before: the state must also have every change that the reader was shown before.
        """
        states = table.partitions if read.partitions else table.itself
        spans = [
            range(max(span.start, first), min(span.stop, read.ended + 1))
            for span in states.spans(read.shown)
            if span.start <= read.ended and span.stop > first
        ]
        assert spans, f"no state from event {first} to {read.ended} explains it: {read}"
        spans = [range(max(span.start, before), span.stop) for span in spans if span.stop > before]
        assert spans, f"goes backwards: nothing from event {before} on, which was shown, explains it: {read}"
        if any(span.stop > read.began for span in spans):
            return spans[0].start
        # The database's answer would have the later changes, so this answer is from a replica's memory.
        self.from_memory += 1
        whole = (at for span in spans for at in span if not self._half_made(table, at))
        found = next(whole, None)
        assert found is not None, f"only the half of a transaction explains it: {read}"
        return found

    def _newest(self, table: _Table, write_ids: ValidWriteIdList, until: int) -> int:
        """The last event, up to one, that changed a table under a valid write id."""
        for at in range(bisect_right(table.changed_at, until) - 1, -1, -1):
            if write_ids.is_valid(table.changed_under[at]):
                return table.changed_at[at]
        return table.itself.since[0]

    def _half_made(self, table: _Table, event_id: int) -> bool:
        """Whether, as of an event, a transaction had changed a table and not ended."""
        written = table.changed_under[: bisect_right(table.changed_at, event_id)]
        return any(self.ended.get(table.txn_of[one], _FOR_EVER) > event_id for one in set(written))

    def _replay(self, event: NotificationEvent) -> None:
        message = event.message
        if event.event_type in (EventType.COMMIT_TXN, EventType.ABORT_TXN):
            self.ended[message["txnid"]] = event.event_id
            if event.event_type == EventType.COMMIT_TXN:
                self.committed.add(message["txnid"])
        if event.database != DATABASE or event.table is None:
            return
        table = self._tables[event.table]
        match event.event_type:
            case EventType.CREATE_TABLE:
                table.itself.add(event.event_id, shown_table(None))
                table.partitions.add(event.event_id, shown_partitions([]))
            case EventType.ALLOC_WRITE_ID:
                for txn_id, write_id in zip(message["txnIdList"], message["writeIdList"], strict=True):
                    assert write_id == len(table.txn_of) + 1, f"write ids are not dense: {event}"
                    table.txn_of[write_id] = txn_id
            case EventType.ALTER_TABLE:
                self._changed(table, event, message["writeId"])
                owner = decode_table(message["tableObjAfterJson"]).owner
                table.itself.add(event.event_id, shown_table(owner))
                self.tags[owner or ""] += 1
            case EventType.ADD_PARTITION | EventType.ALTER_PARTITION | EventType.DROP_PARTITION:
                self._changed(table, event, decode_write_id(message["tableObjJson"]))
                encoded = message.get("partitionListJson") or [message.get("partitionObjAfterJson")]
                if event.event_type == EventType.DROP_PARTITION:
                    for one in message["partitions"]:
                        del table.now[tuple(one.values())]
                else:
                    changed = [decode_partition(one) for one in encoded]
                    table.now |= {one.values: one for one in changed}
                    self.tags.update(one.parameters[TAG] for one in changed)
                table.partitions.add(event.event_id, shown_partitions(table.now.values()))

    def _changed(self, table: _Table, event: NotificationEvent, write_id: int) -> None:
        assert self.ended.get(table.txn_of[write_id]) is None, f"changed after its transaction: {event}"
        table.changed_at.append(event.event_id)
        table.changed_under.append(write_id)

    def check_reported(self, reported: Reported) -> None:
        """Check that the log agrees with one writer's reports: each change once, and no refused change."""
        for txn_id, is_committed in reported.transactions.items():
            assert (txn_id in self.committed) == is_committed, f"transaction {txn_id}: {is_committed} told"
        lost = [tag for tag in reported.done if self.tags[tag] != 1]
        assert not lost, f"changes that were acknowledged are in the log never or twice: {lost}"
        there = [tag for tag in reported.refused if self.tags[tag]]
        assert not there, f"changes that were refused are in the log: {there}"

    def agrees(self, name: str, owner: str | None, partitions: str) -> bool:
        """Whether a table's present state agrees with the log."""
        table = self._tables[name]
        return table.itself.spans(shown_table(owner))[-1:] == [
            range(table.itself.since[-1], _FOR_EVER)
        ] and partitions == shown_partitions(table.now.values())
