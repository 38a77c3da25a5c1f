"""The schema of a table, from the metadata of its newest commit (Hudi's ``TableSchemaResolver``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import NoSuchInstantError, UnsupportedTableError
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig
from airflow_provider.table.schema import LATEST_SCHEMA, SCHEMA, ColumnIds, TableSchema, read_history
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.archived_timeline import read_completed
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Instant, State
from airflow_provider.table.timeline.metadata import (
    REWRITES,
    CommitMetadata,
    decode_commit_metadata,
    stored_text,
)

_KEEP_SCHEMA = REWRITES | {"INDEX"}  # WriteOperationType.canUpdateSchema


def table_schema(storage: Storage, timeline: Timeline, config: TableConfig) -> TableSchema:
    """The schema of a table at the moment of a timeline.

    It reads one or two small files, each once per storage object.

    :param storage: the table's storage.
    :param timeline: the timeline.
    :param config: the table's configuration.
    :raises UnsupportedTableError: when neither a commit nor the configuration has a schema.
    """
    created = created_schema(config)
    found = next((schema for _, schema in _logged_schemas(storage, timeline, created)), None) or created
    if found is None:
        raise UnsupportedTableError(
            f"table {storage.root}: no schema in {PROPERTIES_PATH} and no commit with one",
            location=storage.root,
        )
    if config.drops_partition_columns:
        found = _with_folders(found, config)
    if found.ids is None or found.ids.older:
        return found
    completed = {each.requested_time for each in timeline.commits()}
    older = read_history(storage, lambda each: each in completed or each < timeline.starts)
    return replace(found, ids=replace(found.ids, older=older))


def _with_folders(schema: TableSchema, config: TableConfig) -> TableSchema:
    """A schema with the partition columns; source: ``TableSchemaResolver.appendPartitionColumns``.

    :raises UnsupportedTableError: when the folders are not named by the values of the columns.
    """
    if not config.folders_hold_values:
        raise UnsupportedTableError(
            f"table {config.name!r} has hoodie.datasource.write.drop.partition.columns=true and the key "
            f"generator {config.key_generator}: no folder tells {list(config.partition_fields)}; read "
            "it with the Hudi that made it",
            table=config.name,
            property="hoodie.datasource.write.drop.partition.columns",
        )
    record = json.loads(schema.text)
    there = {each["name"] for each in record["fields"]}
    record["fields"] += [
        {"name": name, "type": ["null", "string"], "default": None}
        for name in config.partition_fields
        if name not in there
    ]
    return replace(schema, text=json.dumps(record), folders=config)


def has_never_changed(schema: TableSchema, config: TableConfig) -> bool:
    """Whether every base file of a table is known to have the table's columns, without reading one.

    Evolution only adds and widens columns, so a table never returns to an earlier schema. All other changes
    need schema on read.

    :param schema: the table's schema.
    :param config: the table's configuration.
    """
    created = created_schema(config)
    is_by_names = schema.ids is None and schema.folders is None
    return is_by_names and created is not None and created.columns.equals(schema.columns)


def later_commit_has_schema(storage: Storage, timeline: Timeline, instant: str) -> bool:
    """Whether a commit that was requested after an instant carries the table's schema.

    :param storage: the table's storage.
    :param timeline: the timeline.
    :param instant: requested time of the instant.
    """
    later = timeline.showing(lambda each: each.requested_time > instant)
    return next(_logged_schemas(storage, later), None) is not None


def keeper_of_schema(storage: Storage, timeline: Timeline, config: TableConfig) -> Instant | None:
    """The commit without which readers would not know the table's columns.

    Commits of table services have no schema (``TableSchemaResolver``), so this commit may be much older than
    the newest one.

    :param storage: the table's storage.
    :param timeline: the timeline.
    :param config: the table's configuration.
    :return: None where the configuration has the same columns, or no commit of the timeline has a schema.
    """
    created = created_schema(config)
    instant, found = next(_logged_schemas(storage, timeline, created), (None, None))
    if created is None or found is None or found.ids is not None:
        return instant
    is_same = created.columns.equals(found.columns) and created.comments() == found.comments()
    return None if is_same else instant


def created_schema(config: TableConfig) -> TableSchema | None:
    """The schema that a table was created with; None when its properties have none.

    :param config: the table's configuration.
    """
    return None if config.create_schema is None else TableSchema(config.create_schema)


_known: WeakKeyDictionary[Storage, dict[str, TableSchema | None]] = WeakKeyDictionary()


def _logged_schemas(
    storage: Storage, timeline: Timeline, expected: TableSchema | None = None
) -> Iterator[tuple[Instant, TableSchema]]:
    """The commits whose metadata have a schema, each with its schema; the last requested commit comes first.

    :param expected: a schema that the newest commit probably has.
    """
    known = _known.setdefault(storage, {})
    for instant in reversed(timeline.instants):
        if instant.state is not State.COMPLETED or instant.action not in WRITE_ACTIONS:
            continue
        if instant.file_name not in known:  # the file of a completed instant never changes
            try:
                content = read_completed(storage, timeline, instant)
            except NoSuchInstantError:  # undone since the timeline was loaded
                continue
            before = next(reversed(known.values()), expected)
            if before is None or not _is_said_in(before, content):
                before = schema_of_commit(decode_commit_metadata(content))
            known[instant.file_name] = before
        if (schema := known[instant.file_name]) is not None:
            yield instant, schema


def remember_schema(storage: Storage, instant: Instant, operation: str, schema: TableSchema) -> None:
    """Cache the schema of a commit that this process has written, so that the next look does not read it.

    :param storage: the table's storage.
    :param instant: the completed instant.
    :param operation: Hudi's operation type of the commit.
    :param schema: the table's schema that the commit's metadata have.
    """
    if schema.ids is None and schema.folders is None and operation.upper() not in _KEEP_SCHEMA:
        _known.setdefault(storage, {})[instant.file_name] = schema


def _is_said_in(schema: TableSchema, content: bytes) -> bool:
    # A search in the bytes costs a fraction of decoding the statistics of every written file.
    if schema.ids is not None or stored_text(SCHEMA) + stored_text(schema.text) not in content:
        return False
    return not any(name.encode() in content for name in (LATEST_SCHEMA, *_KEEP_SCHEMA))


def schema_of_commit(metadata: CommitMetadata) -> TableSchema | None:
    """The table's schema after a commit; None when the commit does not change it.

    :param metadata: the commit's metadata.
    """
    text = metadata.extra_metadata.get(SCHEMA)
    if not text or metadata.operation_type.upper() in _KEEP_SCHEMA:
        return None
    latest = metadata.extra_metadata.get(LATEST_SCHEMA)
    return TableSchema(text, ColumnIds(latest) if latest else None)
