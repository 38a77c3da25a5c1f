"""Snapshots: the transactions, and the write ids of a table, that a reader sees.

The string forms are byte-equal with Hive's (ValidReadTxnList and ValidReaderWriteIdList in
its storage-api), so that Hive's programs read them and this module reads Hive's.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise

from airflow_provider.exceptions import InvalidInputError

NO_OPEN = 2**63 - 1
"""Hive's lowest open id of a list without open ids (Long.MAX_VALUE)."""

MOST_IDS = 1_000_000
"""The default limit on the number of ids in a snapshot's string."""

_MOST_SHOWN = 200
# A run of this many consecutive ids or more is written as one range (ValidReadTxnList).
_MIN_RANGE_LENGTH = 5


@dataclass(frozen=True)
class ValidTxnList:
    """The global transactions that a reader sees: those up to the high watermark, with exceptions.

    :param high_watermark: the reader sees no transaction above it.
    :param exceptions: the open and aborted transactions up to the high watermark, ascending.
    :param aborted: the exceptions that were aborted.
    :param min_open: the lowest open transaction; :data:`NO_OPEN` when none is open.
    """

    high_watermark: int
    exceptions: tuple[int, ...] = ()
    aborted: frozenset[int] = frozenset()
    min_open: int = NO_OPEN

    def __post_init__(self) -> None:
        _check_exceptions(self.exceptions, self.aborted)

    def is_valid(self, txn_id: int) -> bool:
        """Whether the reader sees the transaction's writes."""
        return txn_id <= self.high_watermark and not _holds(self.exceptions, txn_id)

    def is_aborted(self, txn_id: int) -> bool:
        """Whether the transaction is known to be aborted."""
        return txn_id in self.aborted

    def up_to(self, txn_id: int) -> ValidTxnList:
        """The list of a transaction that sees no later transaction (``createValidReadTxnList``).

        The transaction sees its own changes.
        """
        kept = tuple(one for one in self.exceptions if one < txn_id)
        opened = (one for one in kept if one not in self.aborted)
        return ValidTxnList(
            min(txn_id, self.high_watermark), kept, self.aborted & set(kept), next(opened, NO_OPEN)
        )

    def with_committed(self, txn_id: int) -> ValidTxnList:
        """The list with one more committed transaction, and no other change.

        With its own id, a long transaction reads its own writes and all commits of others up to now. Its list
        of Hive's kind shows nothing of transactions that were opened later, and so cannot show the rows that
        it wrote on top of theirs.
        """
        watermark = max(self.high_watermark, txn_id)
        between = range(self.high_watermark + 1, watermark)
        exceptions = tuple(one for one in (*self.exceptions, *between) if one != txn_id)
        aborted = self.aborted - {txn_id}
        opened = next((one for one in exceptions if one not in aborted), NO_OPEN)
        return ValidTxnList(watermark, exceptions, aborted, opened)

    def __str__(self) -> str:
        opened = [txn for txn in self.exceptions if txn not in self.aborted]
        aborted = [txn for txn in self.exceptions if txn in self.aborted]
        return f"{self.high_watermark}:{self.min_open}:{_with_ranges(opened)}:{_with_ranges(aborted)}"

    @classmethod
    def parse(cls, text: str, most_ids: int = MOST_IDS) -> ValidTxnList:
        """Read Hive's string form.

        :param text: ``<high watermark>:<lowest open>:<open ids>:<aborted ids>``; ids by commas, with or
            without ranges ``a-b``. An empty string sees everything, as in Hive.
        :param most_ids: the limit on the number of ids, with ranges written out.
        :raises InvalidInputError: when the text has another form, or more ids.
        """
        if not text:
            return cls(NO_OPEN)
        try:
            watermark, min_open, *lists = text.split(":")
            opened, aborted = _two_lists(lists, most_ids)
            exceptions = tuple(sorted({*opened, *aborted}))
            return cls(int(watermark), exceptions, frozenset(aborted), int(min_open))
        except ValueError as error:
            raise InvalidInputError(
                f"{_beginning(text)!r} is no ValidTxnList; its form is "
                "<high watermark>:<lowest open>:<open>:<aborted>"
            ) from error


@dataclass(frozen=True)
class ValidWriteIdList:
    """The write ids of one table that a reader sees.

    :param table: ``database.table``; None where Hive writes ``null``.
    :param high_watermark: the reader sees no write id above it.
    :param exceptions: the write ids up to the high watermark whose transactions the reader does not see,
        ascending.
    :param aborted: the exceptions whose transactions were aborted.
    :param min_open: the lowest write id of an open transaction; :data:`NO_OPEN` when none is open.
    """

    table: str | None
    high_watermark: int
    exceptions: tuple[int, ...] = ()
    aborted: frozenset[int] = frozenset()
    min_open: int = NO_OPEN

    def __post_init__(self) -> None:
        _check_exceptions(self.exceptions, self.aborted)

    def is_valid(self, write_id: int) -> bool:
        """Whether the reader sees the changes under this id."""
        return write_id <= self.high_watermark and not _holds(self.exceptions, write_id)

    def is_aborted(self, write_id: int) -> bool:
        """Whether the id is known to belong to an aborted transaction."""
        return write_id in self.aborted

    def covers(self, other: ValidWriteIdList) -> bool:
        """Whether this list shows every write id that another reader's list of the same table shows.

        The list of a later moment of the table's history covers that of an earlier one; then :func:`compare`
        says the same (0 or more). But a transaction's own list also holds its own id, which no moment's list
        has. ``compare`` looks at the lowest id that only one of the lists shows, and may call a list newer
        that misses the reader's own write.
        """
        if other.high_watermark > self.high_watermark:
            beyond = len(other.exceptions) - bisect_right(other.exceptions, self.high_watermark)
            if beyond < other.high_watermark - self.high_watermark:
                return False
        if self.exceptions == other.exceptions:
            return True
        hidden = self.exceptions[: bisect_right(self.exceptions, other.high_watermark)]
        return set(other.exceptions).issuperset(hidden)

    def with_committed(self, write_id: int) -> ValidWriteIdList:
        """The list at the moment when one more write id was committed, without any other change.

        The metastore allocates ids in order. So the ids between the high watermark and this one are allocated
        and not committed, and become exceptions.
        """
        watermark = max(self.high_watermark, write_id)
        between = range(self.high_watermark + 1, watermark)
        exceptions = tuple(one for one in (*self.exceptions, *between) if one != write_id)
        aborted = self.aborted - {write_id}
        opened = next((one for one in exceptions if one not in aborted), NO_OPEN)
        return ValidWriteIdList(self.table, watermark, exceptions, aborted, opened)

    def __str__(self) -> str:
        opened = ",".join(str(one) for one in self.exceptions if one not in self.aborted)
        aborted = ",".join(str(one) for one in self.exceptions if one in self.aborted)
        name = "null" if self.table is None else self.table
        return f"{name}:{self.high_watermark}:{self.min_open}:{opened}:{aborted}"

    @classmethod
    def parse(cls, text: str, most_ids: int = MOST_IDS) -> ValidWriteIdList:
        """Read Hive's string form.

        :param text: ``<database.table>:<high watermark>:<lowest open>:<open ids>:<aborted ids>``; an empty
            string sees everything, as in Hive.
        :param most_ids: the limit on the number of ids, with ranges written out.
        :raises InvalidInputError: when the text has another form, or more ids.
        """
        if not text:
            return cls(None, NO_OPEN)
        try:
            table, watermark, min_open, *lists = text.split(":")
            opened, aborted = _two_lists(lists, most_ids)
            return cls(
                None if table.lower() == "null" else table,
                int(watermark),
                tuple(sorted({*opened, *aborted})),
                frozenset(aborted),
                int(min_open),
            )
        except ValueError as error:
            raise InvalidInputError(
                f"{_beginning(text)!r} is no ValidWriteIdList; its form is "
                "<database.table>:<high watermark>:<lowest open>:<open>:<aborted>"
            ) from error


@dataclass(frozen=True)
class TableSnapshot:
    """A reader's snapshot of one table, which it sends with a read to get an answer that is not older.

    :param table_id: the table's id, whatever its present name.
    :param write_ids: the table's write ids that the reader sees.
    """

    table_id: int
    write_ids: ValidWriteIdList


@dataclass(frozen=True)
class ReadSnapshot:
    """The state of several tables at one moment.

    :param valid_txns: the transactions that the reader sees.
    :param tables: each table's snapshot, by ``database.table``.
    :param catalog_event_id: the last event that changed a database or a function.
    """

    valid_txns: ValidTxnList
    tables: Mapping[str, TableSnapshot]
    catalog_event_id: int


def compare(a: ValidWriteIdList, b: ValidWriteIdList) -> int:
    """Compare the ages of two snapshots of one table, as Hive's ``TxnIdUtils.compare``.

    Equivalent snapshots show the same committed write ids: ``[1,2,3]`` up to 3 and
    ``[1,2,3,4,5]`` up to 5 both show none. The comparison treats open and aborted ids alike.

    :return: 0 when they are equivalent, positive when ``a`` is newer, negative when ``b`` is;
        snapshots of different tables are ordered by the tables' names.
    """
    names = (a.table or "null").lower(), (b.table or "null").lower()
    if names[0] != names[1]:
        return -1 if names[0] < names[1] else 1
    for of_a, of_b in zip(a.exceptions, b.exceptions, strict=False):
        if of_a != of_b:
            # The list with the lower exception does not show that id; the other list shows it as committed.
            return 1 if of_a > of_b else -1
    if len(a.exceptions) == len(b.exceptions):
        return _sign(a.high_watermark - b.high_watermark)
    if len(a.exceptions) < len(b.exceptions):
        return _compare_with_longer(a, b)
    return -_compare_with_longer(b, a)


def _compare_with_longer(shorter: ValidWriteIdList, longer: ValidWriteIdList) -> int:
    rest = longer.exceptions[len(shorter.exceptions) :]
    if shorter.high_watermark != rest[0] - 1:
        return _sign(shorter.high_watermark - (rest[0] - 1))
    if rest[-1] - rest[0] + 1 == len(rest) and rest[-1] == longer.high_watermark:
        return 0
    return -1


def _sign(difference: int) -> int:
    return (difference > 0) - (difference < 0)


def _check_exceptions(exceptions: tuple[int, ...], aborted: frozenset[int]) -> None:
    if any(low >= high for low, high in pairwise(exceptions)):
        raise InvalidInputError(f"exceptions {exceptions} of a snapshot must ascend")
    if not aborted.issubset(exceptions):
        raise InvalidInputError(f"aborted ids {sorted(aborted)} of a snapshot must be among its exceptions")


def _holds(ascending: tuple[int, ...], value: int) -> bool:
    at = bisect_left(ascending, value)
    return at < len(ascending) and ascending[at] == value


def _two_lists(lists: list[str], most_ids: int) -> tuple[list[int], list[int]]:
    """The open and the aborted ids. Java's ``split`` leaves out either list when it is empty."""
    if len(lists) > 2:
        raise ValueError(f"{len(lists)} lists of ids, at most 2 expected")
    ranges = [list(_ranges(one)) for one in [*lists, "", ""][:2]]
    ids = sum(len(one) for of_list in ranges for one in of_list)
    if ids > most_ids:
        raise InvalidInputError(
            f"a list of {ids} transactions or write ids is longer than {most_ids}; a server allows more by "
            "--max-write-ids",
            limit=most_ids,
        )
    opened, aborted = (list(chain.from_iterable(of_list)) for of_list in ranges)
    return opened, aborted


def _ranges(text: str) -> Iterator[range]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found = range(int(first), int(last or first) + 1)
        if found.stop - found.start > sys.maxsize:
            raise ValueError(f"{part!r} is no range of ids")
        yield found


def _beginning(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}.."


def _with_ranges(ids: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for one in ids:
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    written: list[str] = []
    for run in runs:
        if len(run) >= _MIN_RANGE_LENGTH:
            written.append(f"{run[0]}-{run[-1]}")
        else:
            written.extend(str(one) for one in run)
    return ",".join(written)
