"""Row ids: virtual columns that tell rows apart by the write ids of a metastore, as Hive's ``ROW__ID`` does.

A row's id is the table's write id under which the row was written, a bucket, and the row's number in the
bucket. If Hudi generates the record keys (:attr:`TableConfig.generates_keys`), the three come from the record
key, otherwise from the sequence number ``_hoodie_commit_seqno``. Both have the form
``<instant>_<task>_<row>``. A row keeps them when a service or the update of another row moves it, and has the
same ones at the target of a replication.

So a row with a generated key keeps its id when it is updated. In a table with a record key an update writes a
row with a new id, as Hive's split update does: a delete of the old row, and an insert of the new one (Hive's
``OrcRecordUpdater.addSplitUpdateEvent``).

Several commits of one transaction have one write id. Their rows differ by the bucket, which has the number of
the commit in the transaction and the number of the task. Hive's bucket has the statement (``BucketCodec``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchInstantError,
    NoWriteIdError,
    UnsupportedTableError,
)
from airflow_provider.table.file_groups import effect_of
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.timeline import Timeline, archived_writes

ROW_ID = "row_id"
CURRENT_WRITE_ID = "current_write_id"

ROW_ID_COLUMNS = pa.schema(
    [
        pa.field(
            ROW_ID,
            pa.struct([("original_write_id", pa.int64()), ("bucket", pa.int64()), ("row", pa.int64())]),
        ),
        pa.field(CURRENT_WRITE_ID, pa.int64()),
    ]
)
"""The virtual columns. ``current_write_id`` is the write id under which the row's values were written."""

STATEMENT_BITS = 32
"""Bits of a bucket for the number of the task. The bits above are the number of the commit."""

_COMMIT_TIME, _SEQUENCE, _RECORD_KEY = META_COLUMNS[:3]
_NUMBERED = "^(?P<instant>[0-9]+)_(?P<task>[0-9]+)_(?P<row>[0-9]+)$"


class CommitId(NamedTuple):
    """A commit by the metastore's numbers.

    :param write_id: the table's write id in the commit's transaction.
    :param statement: the number of the commit among those with this write id, in the order of completion.
    """

    write_id: int
    statement: int


class WriteIds:
    """The write ids of a table's commits, active and archived.

    A commit keeps its number, because a restore undoes the commits that completed last.

    :param location: location of the table, for errors.
    :param by_instant: the ids by the requested time of the commit.
    """

    def __init__(self, location: str, by_instant: Mapping[str, CommitId]) -> None:
        self._location = location
        self._by_instant = by_instant

    @classmethod
    def load(cls, table: HudiTable) -> WriteIds:
        """Read the write ids of a table; the metadata of a commit is read once.

        :param table: the table.
        """
        storage, layout = table.storage, table.config.layout
        timeline = Timeline.load(storage, layout)
        found: dict[str, tuple[str, int]] = {}
        for commit in timeline.commits():
            with suppress(NoSuchInstantError):  # just undone
                effect = effect_of(storage, timeline, commit)
                if effect.write_id is not None:
                    found[commit.requested_time] = (commit.completion_time or "", effect.write_id)
        # The archived timeline is read last, so that it has every instant that has left the active one.
        if layout == 2:  # commits in layout 1 belong to no transaction
            found |= archived_writes(storage)
        commits: dict[int, int] = {}
        by_instant = {}
        for requested_time, (_, write_id) in sorted(found.items(), key=lambda each: each[1]):
            statement = commits.get(write_id, 0)
            commits[write_id] = statement + 1
            by_instant[requested_time] = CommitId(write_id, statement)
        return cls(table.location, by_instant)

    def of(self, instants: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The write ids and the statements of commits.

        :param instants: requested times.
        :raises NoWriteIdError: when a commit has no write id; the error names the commit.
        """
        encoded = instants.dictionary_encode()
        found = [self._one(each) for each in encoded.dictionary.to_pylist()]
        write_ids, statements = (pa.array([each[n] for each in found], pa.int64()) for n in (0, 1))
        return write_ids.take(encoded.indices), statements.take(encoded.indices)

    def _one(self, instant: str) -> CommitId:
        known = self._by_instant.get(instant)
        if known is None:
            raise NoWriteIdError(
                f"table {self._location}: commit {instant} has no write id, so that its rows have no row "
                "id: it belongs to no transaction of a metastore; write the table by its name in a "
                f"metastore, and tell these rows apart by {_RECORD_KEY} and {_SEQUENCE} (meta_columns=True)",
                instant=instant,
            )
        return known


class RowIdMaker:
    """Makes the virtual columns of rows from their Hudi columns.

    :param source: the column that numbers the rows.
    :param write_ids: the write ids of the table's commits.
    :param location: location of the table, for errors.
    """

    def __init__(self, source: str, write_ids: WriteIds, location: str) -> None:
        self.needs = (_COMMIT_TIME, source)
        self._source = source
        self._write_ids = write_ids
        self._location = location

    @classmethod
    def of(cls, table: HudiTable, columns: Iterable[str]) -> RowIdMaker:
        """Make virtual columns for the rows of a table.

        :param table: the table.
        :param columns: names of its columns.
        :raises InvalidInputError: when a column has the name of a virtual column.
        :raises UnsupportedTableError: when Hudi's own columns are not filled.
        """
        if taken := set(ROW_ID_COLUMNS.names) & set(columns):
            raise InvalidInputError(
                f"table {table.location} has a column {min(taken)!r} of its own, so that the virtual column "
                "of that name cannot be read; rename it",
                column=min(taken),
            )
        if not table.config.has_meta_columns:
            raise UnsupportedTableError(
                f"table {table.location} has hoodie.populate.meta.fields=false: its rows do not say which "
                "commit wrote them, and have no row ids",
                location=table.location,
                property="hoodie.populate.meta.fields",
            )
        source = _RECORD_KEY if table.config.generates_keys else _SEQUENCE
        return cls(source, WriteIds.load(table), table.location)

    def column(self, name: str, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """One virtual column.

        :param name: name of the column.
        :param rows: the rows with the columns :attr:`needs`.
        :raises NoWriteIdError: when a commit that wrote some of the rows has no write id.
        :raises UnsupportedTableError: when a row's number is not in Hudi's form.
        """
        if name == CURRENT_WRITE_ID:
            return self._write_ids.of(_texts(rows[_COMMIT_TIME]))[0]
        numbers = _texts(rows[self._source])
        parts = pc.extract_regex(numbers, _NUMBERED)
        if parts.null_count:
            odd = numbers[pc.index(parts.is_null(), True).as_py()].as_py()
            raise UnsupportedTableError(
                f"table {self._location}: {self._source} {odd!r} is not <instant>_<task>_<row>, as Hudi "
                "numbers rows, so that the row has no row id; tell it by that column (meta_columns=True)",
                location=self._location,
                value=odd,
            )
        instants, tasks, numbers = parts.flatten()
        write_ids, statements = self._write_ids.of(instants)
        buckets = pc.add(tasks.cast(pa.int64()), pc.shift_left(statements, np.int64(STATEMENT_BITS)))
        kind = ROW_ID_COLUMNS.field(ROW_ID).type
        return pa.StructArray.from_arrays([write_ids, buckets, numbers.cast(pa.int64())], fields=list(kind))

    def extended(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows with virtual columns.

        :param rows: the rows with the columns :attr:`needs`.
        :param schema: the columns of the result, some of them virtual.
        """
        columns = [
            self.column(name, rows) if name in ROW_ID_COLUMNS.names else rows[name] for name in schema.names
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def _texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.string())
