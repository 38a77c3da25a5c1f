"""The options that a table stores for all its writers and services: how to list and change them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from airflow_provider.concurrency import CommitLog, pending_instants
from airflow_provider.concurrency.indexes import settle_index_config
from airflow_provider.concurrency.log import LogEntry
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.locks import LockProvider, default_lock
from airflow_provider.table.hudi_options import OPTIONS, HudiOptions, Option, Topic
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.properties import PROPERTIES_PATH, TableConfig, dump_properties, parse_properties

_METADATA_TABLE = "hoodie.metadata.enable"


def describe_options(table: HudiTable) -> list[dict[str, Any]]:
    """The effective value of every known option.

    :param table: the table.
    :return: JSON-able, one dict for each option: ``option``, ``value`` as Hudi writes it (None without a
        value), ``from`` (``table``, ``default`` or None) and ``topic``. Secrets are hidden.
    :raises InvalidInputError: when the table's properties contain an invalid option.
    """
    values = table.hudi_options.values
    return [_described(option, values) for option in OPTIONS.values()]


def change_options(
    table: HudiTable,
    given: Mapping[str, Any],
    *,
    unset: Collection[str] = (),
    lock: LockProvider | None = None,
) -> HudiTable:
    """Change options that a table stores. They are in effect for every process that opens the table later.

    :param table: the table.
    :param given: new values, by Hudi's names.
    :param unset: names of options that return to their defaults.
    :param lock: the table lock by the present options; :func:`~airflow_provider.locks.default_lock`
        when None.
    :return: the table with its new options.
    :raises UnknownOperationError: when an option is unknown; the message names the nearest known one.
    :raises InvalidInputError: when a value is not valid for its option, options contradict each other, or an
        option cannot be changed now: the lock while a writer is alive, or the metadata table while it holds
        indexes.
    :raises MissingColumnError: when an option names a column that the table does not have.
    :raises LockTimeoutError: when the table lock is not acquired in time.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    new = HudiOptions.parse(given)
    gone = HudiOptions.names(unset)
    if both := sorted(gone & new.values.keys()):
        raise InvalidInputError(f"{both[0]} is to be set and unset; leave one out", option=both[0])
    new.check_columns(table.schema.names)
    storage = table.storage
    commit_log = CommitLog(storage)
    with lock or default_lock(table):
        before = commit_log.newest()
        properties = parse_properties(storage.read(PROPERTIES_PATH).decode())
        config = TableConfig.from_properties(properties)
        for key in (*gone, *new.values):
            for name in (key, *OPTIONS[key].alternatives):
                properties.pop(name, None)
        properties |= new.to_properties()
        HudiOptions.of_properties(properties).check(with_defaults=True)
        _check_can_change(table, config, new, {*gone, *new.values})
        storage.put(PROPERTIES_PATH, dump_properties(properties).encode())
        # If this process was paused before the put, the log may have newer entries.
        later = commit_log.newest()
        if later != before:
            changed = _indexes_of(before) ^ _indexes_of(later)
            settle_index_config(storage, {partition for partition, _ in changed})
    return HudiTable.at(storage)


def _indexes_of(entry: LogEntry | None) -> set[tuple[str, bool]]:
    """The indexes of the table by an entry of the log, and whether each is complete."""
    return {(each.partition, each.is_complete) for each in (entry.indexes if entry else None) or ()}


def _check_can_change(table: HudiTable, config: TableConfig, new: HudiOptions, keys: Collection[str]) -> None:
    locks = sorted(key for key in keys if OPTIONS[key].topic is Topic.LOCK)
    if locks and (writers := [each.instant for each in pending_instants(table) if each.alive]):
        raise InvalidInputError(
            f"table {table.location}: {locks[0]} cannot be changed while {', '.join(writers)} are in flight: "
            "writers with different locks do not wait for each other; stop them, or wait",
            option=locks[0],
        )
    indexes = (*config.metadata_partitions, *config.inflight_metadata_partitions)
    if new.values.get(_METADATA_TABLE) is False and indexes:
        raise InvalidInputError(
            f"table {table.location} has the index {', '.join(indexes)}; drop it before "
            f"{_METADATA_TABLE}=false",
            option=_METADATA_TABLE,
        )


def _described(option: Option, values: Mapping[str, Any]) -> dict[str, Any]:
    value, said = option.default, None if option.default is None else "default"
    if option.key in values:
        value, said = values[option.key], "table"
    written = None if value is None else "…" if option.is_secret else option.kind.write(value)
    return {"option": option.key, "value": written, "from": said, "topic": str(option.topic)}
