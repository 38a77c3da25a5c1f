"""The rows of a file slice of a merge-on-read table: its base file merged with its log files.

The reader holds the versions of the log files in memory, and the base file one row group at a time. Above a
limit it merges part by part, see :mod:`~airflow_provider.table.reading.log_versions`. Sources:
``BaseHoodieLogRecordReader`` (which blocks count, and in which order), ``BufferedRecordMergerFactory`` and
``KeyBasedFileGroupRecordBuffer`` (which version of a record wins) of Apache Hudi 1.2.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.file_groups import FileSlice, FileSystemView
from airflow_provider.table.files import (
    DATA_BLOCKS,
    BaseFileReader,
    BlockType,
    DeletedRecord,
    FileColumns,
    LogBlock,
    WrappedValue,
    block_rows,
    deleted_records,
    merge_order,
    read_log_blocks,
    valid_log_blocks,
)
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.keys import record_keys
from airflow_provider.table.merge_semantics import IS_DELETED, Mask, MergeSemantics, as_mask
from airflow_provider.table.properties import TableConfig
from airflow_provider.table.reading.log_versions import LogVersions, Versions, merge_memory
from airflow_provider.table.record_merge import Batch, Merge, latest_versions
from airflow_provider.table.schema import META_COLUMNS, TableSchema, with_meta_columns
from airflow_provider.table.storage import ByteRange, Storage

_RECORD_KEY = META_COLUMNS[2]


class _EveryInstant(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


EVERY_INSTANT: Container[str] = _EveryInstant()
"""Shows every instant: for a reader of file slices whose files are all of completed instants."""


class Logged(NamedTuple):
    """The content of a file slice's log files.

    :param versions: the newest version of each record.
    :param ended: keys of records that a delete without ordering value removes, whatever ordering values the
        base file has.
    """

    versions: Batch
    ended: pa.Array


@dataclass(frozen=True)
class SliceReader:
    """Reads file slices of one snapshot.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :param schema: the table's schema at that moment.
    :param semantics: how the table merges the versions of a record.
    :param shown: requested times of the instants that the snapshot shows.
    :param memory: bytes that the merge of a slice may take; see :func:`merge_memory`. With None, the default,
        there is no limit, and the order of a slice's rows does not depend on the columns that are read.
    :param use_threads: whether Arrow's threads may decode files; see :class:`MadeRows`.
    """

    storage: Storage
    config: TableConfig
    schema: TableSchema
    semantics: MergeSemantics
    shown: Container[str]
    memory: int | None = field(default=None, kw_only=True)
    use_threads: bool = field(default=True, kw_only=True)

    @classmethod
    def of(cls, table: HudiTable, view: FileSystemView) -> SliceReader:
        """A reader of the slices that a view shows.

        :param table: the table.
        :param view: the snapshot.
        :raises UnsupportedTableError: when the table merges versions in an unknown way.
        :raises InvalidInputError: see :func:`merge_memory`.
        """
        schema, memory = table.schema_on(view.timeline), merge_memory(table.config)
        return cls(table.storage, table.config, schema, table.merge_semantics, view.shown, memory=memory)

    def rows(self, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The merged rows of a file slice.

        :param file_slice: the slice.
        :param columns: the columns to read; Hudi's own may be among them.
        :raises CorruptTableError: when a file of the slice is damaged.
        :raises FileNotFoundError: when a clean has deleted a file of the slice.
        """
        if not file_slice.log_paths:
            yield from self._at_once(file_slice, columns, None)
            return
        with self._logged(file_slice, self._needed(columns), self.memory) as versions:
            if versions.is_spilled:
                yield from self._by_part(file_slice, columns, versions)
            else:
                yield from self._at_once(file_slice, columns, self._newest(versions))

    def keys(self, file_slice: FileSlice) -> pa.ChunkedArray:
        """The record keys that live in a file slice.

        :param file_slice: the slice.
        """
        parts = [rows[_RECORD_KEY].cast(pa.string()) for rows in self.rows(file_slice, [_RECORD_KEY])]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())

    def blocks(self, file_slice: FileSlice) -> list[LogBlock]:
        """The valid log blocks of a slice, in the order in which they are merged.

        :param file_slice: the slice.
        """
        return merge_order(valid_log_blocks(self._blocks(file_slice), self.shown.__contains__))

    def newest_versions(self, file_slice: FileSlice) -> Batch:
        """The newest version of each record in the log files of a slice, with Hudi's columns.

        :param file_slice: the slice; it has log files.
        """
        columns = self._needed(with_meta_columns(self.schema.columns).names)
        with self._logged(file_slice, columns, None) as versions:
            logged = self._newest(versions)
        if logged is None:
            raise CorruptTableError(f"the log files of {file_slice.file_id} hold no block that counts")
        return logged.versions

    def may_delete(self, file_slice: FileSlice) -> bool:
        """Whether the log files of a slice may delete a record that its base file has.

        :param file_slice: the slice.
        """
        if {IS_DELETED, self.semantics.delete_field} & {*self.schema.columns.names}:
            return bool(file_slice.log_paths)
        return any(block.block_type is BlockType.DELETE for block in self._blocks(file_slice))

    def _at_once(
        self, file_slice: FileSlice, columns: Sequence[str], logged: Logged | None
    ) -> Iterator[pa.Table]:
        """The rows of a slice: those of the base file that stay, then those of the log files."""
        merge = Merge(logged.versions, self.semantics) if logged else None
        if file_slice.base_path is not None:
            with BaseFileReader(self.storage, file_slice.base_path, self.schema) as base_file:
                if logged is None or merge is None:
                    yield from base_file.row_groups(columns, use_threads=self.use_threads)
                else:
                    for rows in self._base_rows(base_file, columns):
                        stays = _stays(rows, logged, merge)
                        rows = rows.select(columns)
                        yield rows if stays.all() else rows.filter(pa.array(stays))
        if merge is not None:
            for merged, _ in merge.written():
                yield merged.rows.select(columns)

    def _by_part(
        self, file_slice: FileSlice, columns: Sequence[str], versions: LogVersions
    ) -> Iterator[pa.Table]:
        """The rows of a slice: those of the log files part by part, then those of the base file that stay.

        A part reads only the columns of the base file that decide. So the base file's other columns are read
        once, and its rows keep their order, which a clustering may have given them.
        """
        with ExitStack() as opened:
            base_file, stays = None, list[Mask]()
            if file_slice.base_path is not None:
                reader = BaseFileReader(self.storage, file_slice.base_path, self.schema)
                base_file = opened.enter_context(reader)
                stays = [np.ones(count, np.bool_) for count in base_file.row_counts]
            decisive = columns if versions.keeps_values else ()
            for logged in map(self._newest_of, versions.parts()):
                merge = Merge(logged.versions, self.semantics)
                if base_file is not None:
                    groups = self._base_rows(base_file, decisive)
                    for rows, stay in zip(groups, stays, strict=True):
                        stay &= _stays(rows, logged, merge)
                for merged, _ in merge.written():
                    yield merged.rows.select(columns)
                del logged, merge  # before the next part comes into memory
            if base_file is not None:
                groups = self._base_rows(base_file, columns)
                for rows, stay in zip(groups, stays, strict=True):
                    yield rows.select(columns).filter(pa.array(stay))

    @cached_property
    def _kinds(self) -> pa.Schema:
        return with_meta_columns(self.schema.columns)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        """Some columns, and those that the merge needs."""
        keys = () if self.config.has_meta_columns else self.config.record_key_fields
        decisive = (*keys, *self.semantics.ordering_fields, self.semantics.delete_field, IS_DELETED)
        there = set(self.schema.columns.names)
        more = (each for each in decisive if each is not None and each in there)
        return list(dict.fromkeys((*columns, _RECORD_KEY, *more)))

    def _base_rows(self, base_file: BaseFileReader, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The row groups of a base file, with some columns and those that the merge needs."""
        needed = self._needed(columns)
        if self._key_column is None or _RECORD_KEY in columns:
            yield from self._with_keys(base_file.row_groups(needed, use_threads=self.use_threads))
            return
        needed = [*dict.fromkeys((*needed, self._key_column))]
        needed.remove(_RECORD_KEY)
        for rows in base_file.row_groups(needed, use_threads=self.use_threads):
            yield rows.append_column(_RECORD_KEY, rows[self._key_column])

    @cached_property
    def _key_column(self) -> str | None:
        """The column that holds the record keys as they are, so that Hudi's own column need not be read.

        None where no column does (``SimpleKeyGenerator``, ``NonpartitionedKeyGenerator``).
        """
        config = self.config
        if len(config.record_key_fields) != 1 or config.key_generator not in ("SIMPLE", "NON_PARTITION"):
            return None
        (name,) = config.record_key_fields
        position = self.schema.columns.get_field_index(name)
        return name if position >= 0 and self.schema.columns.types[position] == pa.string() else None

    def _with_keys(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Rows with their record keys, which a table without meta columns does not store."""
        for rows in parts:
            if self.config.has_meta_columns:
                yield rows
            else:
                position = rows.schema.get_field_index(_RECORD_KEY)
                yield rows.set_column(position, _RECORD_KEY, record_keys(rows, self.config))

    @contextmanager
    def _logged(self, file_slice: FileSlice, columns: list[str], memory: int | None) -> Iterator[LogVersions]:
        blocks = self.blocks(file_slice)
        keeps_values = self.semantics.keeps_values or any(block.is_partial for block in blocks)
        with LogVersions(memory, keeps_values=keeps_values) as found:
            for block in blocks:
                if (versions := self._versions(file_slice, block, columns)) is not None:
                    found.add(versions)
            yield found

    def _newest(self, versions: LogVersions) -> Logged | None:
        """The newest versions of all records; None when no block counts."""
        return next(map(self._newest_of, versions.parts()), None)

    def _newest_of(self, versions: Versions) -> Logged:
        batch, ended = versions
        since_the_end = _since_the_end(batch, ended) if ended.any() else batch
        newest = latest_versions(since_the_end, pa.array(np.arange(len(since_the_end))), self.semantics)
        keys = pa.array([], pa.string())
        if ended.any():
            # A row that was logged after the delete competes with the base file's row, as in Hudi.
            without_order = np.logical_and.reduce([as_mask(each.is_null()) for each in newest.ordering])
            deleted = newest.keys.filter(pa.array(newest.deletions & without_order))
            keys = deleted.filter(pc.is_in(deleted, value_set=batch.keys.filter(pa.array(ended))))
        return Logged(newest, keys)

    def _blocks(self, file_slice: FileSlice) -> Iterator[LogBlock]:
        for path in file_slice.log_paths:
            yield from self.blocks_of_file(path)

    def blocks_of_file(self, path: str) -> Iterator[LogBlock]:
        """All blocks of a log file, whether they count or not.

        :param path: the file, relative to the table.
        :raises CorruptTableError: when the file is damaged.
        """
        content = ByteRange.of_file(self.storage, path)
        if content.size:  # a writer may have died before it wrote a block
            yield from read_log_blocks(content)

    def _versions(self, file_slice: FileSlice, block: LogBlock, columns: list[str]) -> Versions | None:
        if block.block_type in DATA_BLOCKS:
            return self._rows_of(file_slice, block, columns)
        if block.block_type is BlockType.DELETE:
            deleted = deleted_records(block)
            return self._deletes_of(block, deleted, columns) if deleted else None
        return None

    def _rows_of(self, file_slice: FileSlice, block: LogBlock, columns: list[str]) -> Versions:
        origins = self.schema.origins_at(file_slice.partition_path, block.instant) or {}
        becomes = FileColumns(block.content.name, self.schema.columns, origins)
        found = block_rows(
            block, lambda stored: becomes.stored(stored, columns), use_threads=self.use_threads
        )
        if not self.config.has_meta_columns and _RECORD_KEY not in found.column_names:
            found = found.append_column(_RECORD_KEY, pa.nulls(len(found), pa.string()))
        rows = _plain(becomes.bring(found, columns), self._kinds)
        (rows,) = self._with_keys([rows])
        nothing: Mask = np.zeros(len(rows), np.bool_)
        unsaid = {}
        if block.is_partial:
            in_files = (name for name in columns if name not in origins or origins[name].name is not None)
            unsaid = {name: ~nothing for name in in_files if not becomes.stored(found.schema, [name])}
        ordering = tuple(rows[name].combine_chunks() for name in self.semantics.ordering_fields)
        deletes = self.semantics.deletions(rows)
        keys = rows[_RECORD_KEY].combine_chunks()
        return Versions(Batch(rows, keys, ordering, deletes, unsaid), nothing)

    def _deletes_of(self, block: LogBlock, deleted: list[DeletedRecord], columns: list[str]) -> Versions:
        keys = pa.array([each.record_key for each in deleted], pa.string())
        kinds = [self._kinds.field(name).type for name in columns]
        rows = pa.Table.from_arrays(
            [
                keys if name == _RECORD_KEY else pa.nulls(len(keys), kind)
                for name, kind in zip(columns, kinds, strict=True)
            ],
            names=columns,
        )
        fields = self.semantics.ordering_fields
        values = [_ordering_values(each.ordering_value, len(fields)) for each in deleted]
        try:
            ordering = tuple(
                _typed([None if each is None else each[number] for each in values], self._kinds.field(name))
                for number, name in enumerate(fields)
            )
        except pa.ArrowException as error:
            raise CorruptTableError(
                f"a delete block in {block.content.name} has ordering values that {', '.join(fields)} cannot "
                f"have: {error}"
            ) from error
        # If the commit order decides, the last version wins anyway.
        ended = np.array([bool(fields) and each is None for each in values], np.bool_)
        return Versions(Batch(rows, keys, ordering, np.ones(len(keys), np.bool_)), ended)


def _stays(rows: pa.Table, logged: Logged, merge: Merge) -> Mask:
    """Which rows of the base file the log files do not change."""
    if not len(logged.ended):
        return merge.stays(rows)
    stays = ~as_mask(pc.is_in(rows[_RECORD_KEY], value_set=logged.ended))
    stays[stays] = merge.stays(rows.filter(pa.array(stays)))
    return stays


def _since_the_end(versions: Batch, ended: Mask) -> Batch:
    """The versions that no later delete without ordering value removes."""
    codes = versions.keys.dictionary_encode().indices.to_numpy()
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    (positions,) = np.nonzero(ended)
    np.maximum.at(last, codes[positions], positions)
    return versions.filter(np.arange(len(codes)) >= last[codes])


def _ordering_values(value: WrappedValue | None, fields: int) -> tuple[object, ...] | None:
    """The ordering values of a delete; None when it has none (``OrderingValues.isDefault``)."""
    if value is None or (value.wrapper == "IntWrapper" and value.value == 0):
        return None
    if value.wrapper != "ArrayWrapper":
        return (value.value,) * fields
    values = tuple(None if each is None else each.value for each in value.value)
    return values if len(values) == fields else None


def _typed(values: list[object], field: pa.Field) -> pa.Array:
    found = pa.array(values)
    if pa.types.is_integer(found.type) and pa.types.is_temporal(field.type):
        # Avro stores a date as days, and a timestamp in the column's unit.
        width = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
        return found.cast(width).cast(field.type)
    return found.cast(field.type, safe=False)


def _plain(rows: pa.Table, kinds: pa.Schema) -> pa.Table:
    """Rows with the table's types; dictionaries are decoded."""
    fields = [kinds.field(name) for name in rows.column_names]
    arrays = [rows[each.name].cast(each.type) for each in fields]
    return pa.Table.from_arrays(arrays, names=rows.column_names)
