"""A Hudi table on storage: create it, open it, find its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from airflow_provider.exceptions import (
    InvalidInputError,
    NotATableError,
    TableExistsError,
    UnsupportedTableError,
)
from airflow_provider.table.bucket_index import BucketIndex, bucket_index_of
from airflow_provider.table.file_groups import (
    BaseFile,
    Effect,
    FileSystemView,
    ValidWriteIds,
    check_complete,
    check_not_cleaned,
    invisible_commits,
    looking_again,
)
from airflow_provider.table.hudi_options import HudiOptions
from airflow_provider.table.merge_semantics import MergeSemantics
from airflow_provider.table.metadata_table import (
    MetadataPartition,
    UsableIndexes,
    unsupported_indexes,
    unsupported_indexes_error,
)
from airflow_provider.table.new_table import check_new_columns, check_not_nested, check_table_type
from airflow_provider.table.properties import (
    CONCURRENCY_MODE,
    COPY_ON_WRITE,
    LOCAL,
    LOG_BLOCK_FORMAT,
    NON_BLOCKING,
    PROPERTIES_PATH,
    TIMELINE_ZONE,
    TableConfig,
    dump_properties,
    parse_properties,
    table_type_of,
)
from airflow_provider.table.schema import TableSchema, arrow_to_avro
from airflow_provider.table.skipping import Selection, Where, select_files
from airflow_provider.table.storage import DEFAULT_DURABILITY, DURABILITY, Durability, Storage, told_of_access
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    Timeline,
    check_files_of_undone,
    find_commit,
    settled_timeline,
    table_schema,
    timeline_as_of,
    undone_since,
    without_undone,
)
from airflow_provider.table.writable import check_layout, check_non_blocking, check_version


class HudiTable:
    """A table whose ``hoodie.properties`` has been read.

    :meth:`timeline` and :meth:`view` read the storage on every call. The object remembers its own last write,
    and compares it with the timeline before it uses it.

    :param storage: the table's storage.
    :param config: the table's configuration.
    :ivar columns_seen: the data columns after the last write through this object; None before the first one.
    """

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage = storage
        self.config = config
        self.columns_seen: pa.Schema | None = None
        storage.durability = _durability(storage, config)
        storage.timeline_zone = _timeline_zone(storage, config)
        storage.timeline_layout = config.layout

    def __repr__(self) -> str:
        return f"HudiTable({self.config.name!r} at {self.location!r})"

    @property
    def location(self) -> str:
        """Absolute path or URL of the table."""
        return self.storage.root

    @classmethod
    def open(cls, location: str, storage_options: Mapping[str, Any] | None = None) -> HudiTable:
        """Open an existing table.

        :param location: absolute path or URL.
        :param storage_options: keyword arguments of the fsspec file system.
        :raises NotATableError: when there is no ``.hoodie/hoodie.properties``.
        :raises UnsupportedTableError: when the table's version or layout is unknown.
        :raises CorruptTableError: when the properties cannot be understood.
        :raises InvalidInputError: when the storage cannot be opened, or denies access.
        """
        return cls.at(Storage(location, storage_options))

    @classmethod
    def at(cls, storage: Storage) -> HudiTable:
        """Open an existing table on a given storage object; see :meth:`open`.

        :param storage: the table's storage.
        """
        location = storage.root
        try:
            with told_of_access(location):
                text = storage.read(PROPERTIES_PATH).decode()
        except (FileNotFoundError, NotADirectoryError):
            raise NotATableError(
                f"{location} is not a Hudi table: it has no {PROPERTIES_PATH}; "
                "create one with HudiTable.create or CreateTableOperator",
                location=location,
            ) from None
        return cls(storage, TableConfig.from_properties(parse_properties(text)))

    @classmethod
    def create(
        cls,
        location: str,
        *,
        name: str,
        schema: pa.Schema,
        record_key: Sequence[str] | None,
        partition_by: Sequence[str] = (),
        ordering_field: str | None = None,
        database: str = "",
        hive_style: bool = True,
        table_type: str = COPY_ON_WRITE,
        concurrency: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        hudi_options: Mapping[str, Any] | None = None,
    ) -> HudiTable:
        """Create an empty table, version 9, timeline layout 2, UTC.

        A table cannot be created inside another table's folder, nor around one. The method checks each parent
        folder, at one request each. If the location is not empty, it also checks all folders below it. Two
        tables that are created at the same moment may miss each other.

        :param location: absolute path or URL; must not hold a table.
        :param name: table name.
        :param schema: data columns, without Hudi's meta columns.
        :param record_key: columns whose values identify a record inside its partition; None for a table
            without a record key, whose rows get keys when they are written. Such a table takes inserts and
            overwrites, and neither upserts nor deletes.
        :param partition_by: columns whose values make the partition path; empty for a table without
            partitions.
        :param ordering_field: the column that decides between two versions of a record: the
            larger value wins; the later write wins when None.
        :param database: database name, part of the table's checksum.
        :param hive_style: whether partition folders are named ``column=value``.
        :param table_type: ``copy_on_write``: an upsert rewrites the base files that it changes; or
            ``merge_on_read``: an upsert appends log files, which readers merge with the base files, and which
            compactions write into new base files.
        :param concurrency: ``optimistic``: if two writes touch one file group, the first to commit wins; or
            ``non_blocking``: writes that append to one file group do not conflict. None leaves it to the
            options.
        :param storage_options: keyword arguments of the fsspec file system.
        :param hudi_options: options for every writer and service of the table, by Hudi's names; see
            :meth:`HudiOptions.parse`. They are stored in its ``hoodie.properties``.
        :raises MissingColumnError: when a named column is not in the schema.
        :raises InvalidInputError: when the schema or the record key is empty, an ordering field is given
            without a record key, the type is unknown, a column is named like one of Hudi's meta columns, or
            an option is unknown, of the wrong type, or contradicts another; or when the location is inside
            another table's folder, or holds one.
        :raises TableExistsError: when there is a table already.
        """
        check_new_columns(schema, record_key, partition_by, ordering_field)
        kind = table_type_of(table_type)
        options = HudiOptions.parse(hudi_options).with_concurrency(concurrency)
        options.check(with_defaults=True)
        options.check_columns(schema.names)
        check_table_type(kind, options)
        storage = Storage(location, storage_options)
        config = TableConfig(
            name=name,
            database=database,
            table_type=kind,
            record_key_fields=tuple(record_key or ()),
            partition_fields=tuple(partition_by),
            ordering_fields=(ordering_field,) if ordering_field else (),
            hive_style=hive_style,
            url_encode=True,
            create_schema=arrow_to_avro(schema, name),
        )
        config = replace(config, raw=config.to_properties() | options.to_properties())
        bucket_index_of(config)  # raises if the index cannot work
        table, text = cls(storage, config), dump_properties(config.to_properties())
        with told_of_access(location):
            is_there = storage.stat(PROPERTIES_PATH) is not None
        if not is_there:
            check_not_nested(storage)
        if is_there or not storage.put_if_absent(PROPERTIES_PATH, text.encode()):
            raise TableExistsError(
                f"{location} holds a Hudi table already; open it, or choose another location",
                location=location,
            )
        storage.sync()
        return table

    def timeline(self) -> Timeline:
        """The active timeline as it is now."""
        return Timeline.load(self.storage, self.config.layout)

    def find_commit(self, requested_time: str) -> tuple[Instant, CommitMetadata] | None:
        """A completed commit of the active or of the archived timeline, and its metadata.

        :param requested_time: requested time of the commit.
        :return: None when there is no such instant, or it is pending.
        """
        return find_commit(self.storage, self.timeline(), requested_time, self.config.layout)

    def view(
        self, as_of: str | None = None, *, valid_write_ids: ValidWriteIds | None = None
    ) -> FileSystemView:
        """The file slices that a reader sees.

        :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
        :param valid_write_ids: see :meth:`select_files`.
        :return: a view that lists files when they are asked for. It raises
            :class:`~airflow_provider.exceptions.CommitUndoneError` if one of its commits has been undone by
            then. :func:`~airflow_provider.table.file_groups.looking_again` makes another view then.
        :raises SnapshotUnavailableError: when a visible commit depends on an invisible one.
        :raises SnapshotNotSettledError: when a write may still complete by ``as_of``.
        """
        return self._view(as_of, valid_write_ids)[0]

    @property
    def is_merge_on_read(self) -> bool:
        """Whether some of the rows may be in log files."""
        return self.config.table_type != COPY_ON_WRITE

    @property
    def write_action(self) -> Action:
        """The action of a write on the timeline that takes no file group out."""
        return Action.DELTA_COMMIT if self.is_merge_on_read else Action.COMMIT

    def check_keeps_record_index(self) -> None:
        """Make sure that this package can maintain a record index of the table.

        :raises UnsupportedTableError: when the table is merge-on-read and has a bucket index. Its writers put
            new keys into log files without looking at the concurrent log files of others.
        """
        if self.is_merge_on_read and self.bucket_index is not None:
            raise UnsupportedTableError(
                f"table {self.location} is {self.config.table_type} and has a bucket index, which says where "
                f"a record key lives: {MetadataPartition.RECORD_INDEX} is not kept here beside it; drop it, "
                "or write with the Hudi that built it",
                location=self.location,
            )

    def check_mergeable(self) -> None:
        """Make sure that the base files alone hold the table's rows.

        :raises UnsupportedTableError: for a merge-on-read table, some of whose rows are in log files.
        """
        if self.is_merge_on_read:
            raise UnsupportedTableError(
                f"table {self.location} is {self.config.table_type}: its base files alone do not hold its "
                "rows; read it with snapshot(), or what its base files hold with read_optimized()",
                location=self.location,
            )

    def base_files(
        self,
        as_of: str | None = None,
        *,
        valid_write_ids: ValidWriteIds | None = None,
        where: Where | None = None,
    ) -> list[BaseFile]:
        """The base files that hold exactly the rows that a reader sees, or that a query has to open.

        :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
        :param valid_write_ids: see :meth:`select_files`, whose errors are raised here too.
        :param where: the query's predicate; files that cannot hold a matching row are left out.
        """
        found = self.select_files(where, as_of, valid_write_ids=valid_write_ids)
        return list(found.base_files)

    @looking_again
    def select_files(
        self,
        where: Where | None = None,
        as_of: str | None = None,
        *,
        valid_write_ids: ValidWriteIds | None = None,
    ) -> Selection:
        """The base files that a query has to open, and the indexes that decided it.

        :param where: the query's predicate, see :data:`~airflow_provider.table.skipping.Where`; None for all
            rows. Files that cannot hold a matching row are left out.
        :param as_of: see :meth:`~airflow_provider.table.timeline.active.Timeline.as_of`; now when None.
        :param valid_write_ids: the write ids of this table that the reader sees, usually a
            :class:`~airflow_provider.metastore.model.ValidWriteIdList`: commits of other metastore
            transactions are invisible. Commits without a transaction are always visible. None shows all.
        :raises NoSuchInstantError: when no commit had completed at ``as_of``.
        :raises SnapshotUnavailableError: when a visible commit depends on an invisible one, or a file that
            the reader should see was cleaned.
        :raises SnapshotNotSettledError: when a write may still complete by ``as_of``.
        :raises InvalidInputError: when ``where`` cannot be evaluated over the table's columns.
        :raises UnsupportedTableError: for a merge-on-read table.
        """
        self.check_mergeable()
        view = self.readable_view(as_of, valid_write_ids=valid_write_ids)
        # Without a predicate the columns do not matter; a table without a commit may have none.
        columns = pa.schema([]) if where is None else self.schema_on(view.timeline).columns
        return select_files(view, self.config, columns, where)

    @looking_again
    def select_rows(
        self,
        where: Where | None = None,
        as_of: str | None = None,
        *,
        valid_write_ids: ValidWriteIds | None = None,
    ) -> tuple[Selection, TableSchema]:
        """The base files that a query has to open, and the schema of that moment.

        :param where: see :meth:`select_files`, whose errors are raised here too.
        :param as_of: see :meth:`select_files`.
        :param valid_write_ids: see :meth:`select_files`.
        """
        self.check_mergeable()
        view = self.readable_view(as_of, valid_write_ids=valid_write_ids)
        schema = self.schema_on(view.timeline)
        return select_files(view, self.config, schema.columns, where), schema

    def readable_view(
        self, as_of: str | None = None, *, valid_write_ids: ValidWriteIds | None = None
    ) -> FileSystemView:
        """The file slices that a reader sees, after a check that no clean has deleted one of their files.

        :param as_of: see :meth:`view`, whose errors are raised here too.
        :param valid_write_ids: see :meth:`select_files`.
        :raises SnapshotUnavailableError: when a file that the reader should see was cleaned.
        """
        view, hidden = self._view(as_of, valid_write_ids)
        if hidden:
            shown = [
                each
                for partition in view.partitions()
                for each in (*view.base_files(partition), *view.log_files(partition))
            ]
            check_not_cleaned(self.storage, view, shown, hidden)
        if hidden or as_of is not None:
            check_complete(self.storage, view, self.timeline(), as_of)
        return view

    def _view(
        self, as_of: str | None, valid_write_ids: ValidWriteIds | None
    ) -> tuple[FileSystemView, Sequence[Effect]]:
        """The view, and the commits that are invisible on it."""
        hidden: list[Effect] = []

        def load() -> Timeline:
            if as_of is None:
                timeline = without_undone(self.timeline())
            else:
                timeline = without_undone(settled_timeline(self.storage, self.timeline, as_of))
                timeline = timeline_as_of(self.storage, timeline, as_of)
            if valid_write_ids is None:
                return timeline
            hidden[:] = invisible_commits(self.storage, timeline, valid_write_ids)
            unseen = {effect.instant for effect in hidden}
            return timeline.showing(lambda instant: instant not in unseen)

        def indexes(timeline: Callable[[], Timeline]) -> UsableIndexes | None:
            # The metadata table of layout 1 has another format.
            if self.config.layout != 2 or not self.config.metadata_partitions:
                return None
            shown = timeline()
            return UsableIndexes(
                self.storage,
                shown,
                is_moment=not hidden,
                was_undone=lambda: bool(undone_since(self.storage, shown, self.timeline())),
            )

        view = FileSystemView(self.storage, load, indexes, self.check_standing)
        _ = view.timeline  # loaded now, not at the first use
        return view, hidden

    def check_standing(self, shown: Timeline, listed: Mapping[str, Collection[str]]) -> None:
        """Make sure that listings lack no file of the commits on a timeline.

        :param shown: the timeline, which was loaded before the listings.
        :param listed: file names by partition path.
        :raises CommitUndoneError: when a commit was undone since, and one of its files is gone.
        """
        check_files_of_undone(self.storage, shown, self.timeline(), listed)

    @cached_property
    def bucket_index(self) -> BucketIndex | None:
        """The index by which a hash of each record key decides its file group; None when there is none.

        :raises UnsupportedTableError: when the index is unknown here.
        """
        return bucket_index_of(self.config)

    @cached_property
    def is_non_blocking(self) -> bool:
        """Whether writers that append to one file group do not conflict."""
        return self.config.raw.get(CONCURRENCY_MODE, "").upper() == NON_BLOCKING

    @property
    def log_block_format(self) -> str:
        """The format of new versions of records in log files, by the table's options."""
        return str(self.hudi_options.values.get(LOG_BLOCK_FORMAT, "parquet"))

    @cached_property
    def merge_semantics(self) -> MergeSemantics:
        """How the versions of a record are merged.

        :raises UnsupportedTableError: when a property has a value that is unknown here.
        """
        return MergeSemantics.of(self.config)

    @cached_property
    def hudi_options(self) -> HudiOptions:
        """The options that the table's properties set for every writer and service.

        :raises InvalidInputError: when an option has a value that it cannot have, or contradicts another.
        """
        try:
            return HudiOptions.of_properties(self.config.raw)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"table {self.location}: {PROPERTIES_PATH}: {error}", **error.details
            ) from error

    @property
    def schema(self) -> pa.Schema:
        """The present data columns, without Hudi's meta columns; reads the timeline on every call.

        :raises UnsupportedTableError: when neither the configuration nor a commit has the schema.
        """
        return self.schema_on(self.timeline()).columns

    def schema_on(self, timeline: Timeline) -> TableSchema:
        """The schema at the moment of a timeline.

        :param timeline: the timeline of :meth:`timeline` or of a view.
        :raises UnsupportedTableError: when neither the configuration nor a commit has the schema.
        """
        return table_schema(self.storage, timeline, self.config)

    def check_writable(self, *, keeps_indexes: bool = True) -> None:
        """Make sure that this package can write to the table.

        :param keeps_indexes: whether the write has to update all of the table's indexes.
        :raises UnsupportedTableError: when this package does not write the table's version or layout, or the
            layout of its files (:func:`~airflow_provider.table.writable.check_layout`), or does not maintain
            one of its indexes.
        """
        config = self.config
        check_version(self.location, config)
        check_layout(config)
        if self.is_non_blocking:
            check_non_blocking(self.location, config, has_buckets=self.bucket_index is not None)
        named = {*config.metadata_partitions, *config.inflight_metadata_partitions}
        if keeps_indexes and MetadataPartition.RECORD_INDEX in named:
            self.check_keeps_record_index()
        if keeps_indexes and (foreign := unsupported_indexes(self.storage, named)):
            raise unsupported_indexes_error(self.location, foreign)


def _durability(storage: Storage, config: TableConfig) -> Durability:
    value = config.raw.get(DURABILITY, DEFAULT_DURABILITY)
    try:
        return Durability(value.strip().lower())
    except ValueError:
        raise InvalidInputError(
            f"table {storage.root}: {PROPERTIES_PATH}: {DURABILITY} must be one of {', '.join(Durability)}, "
            f"not {value!r}",
            option=DURABILITY,
        ) from None


def _timeline_zone(storage: Storage, config: TableConfig) -> str:
    if config.timezone != LOCAL or TIMELINE_ZONE not in config.raw:
        return config.timezone
    value = config.raw[TIMELINE_ZONE].strip()
    try:
        return ZoneInfo(value).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidInputError(
            f"table {storage.root}: {PROPERTIES_PATH}: {TIMELINE_ZONE} must name a time zone, such as "
            f"America/Chicago, not {value!r}",
            option=TIMELINE_ZONE,
        ) from None
