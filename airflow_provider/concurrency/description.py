"""What a table holds and what an instant did, in the words of people on call."""

from __future__ import annotations

from typing import Any

from airflow_provider.concurrency.commit_log import CommitLog, LogEntry
from airflow_provider.concurrency.in_flight import pending_instants
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action, State
from airflow_provider.table.metadata import decode_any


def describe_table(table: HudiTable) -> dict[str, Any]:
    """What a table is, and what it holds now.

    :param table: the table; nothing is written to it.
    :return: JSON-able: ``location``, ``name``, ``type``, ``version``, ``timeline_layout``,
        ``record_key``, ``partition_by``, ``ordering``, ``metadata_partitions``, ``columns``,
        ``partitions``, ``file_groups``, ``bytes``, ``newest_commit``, ``pending``, ``dead_writers``.
    """
    config, timeline = table.config, table.timeline()
    base_files = table.view().all_base_files()
    pending = pending_instants(table)
    newest = timeline.commits()[-1:]
    return {
        "location": table.location,
        "name": config.name,
        "type": config.table_type,
        "version": config.version,
        "timeline_layout": config.layout,
        "record_key": list(config.record_key_fields),
        "partition_by": list(config.partition_fields),
        "ordering": list(config.ordering_fields),
        "metadata_partitions": list(config.metadata_partitions),
        "columns": {column.name: str(column.type) for column in table.schema},
        "partitions": len({base_file.partition_path for base_file in base_files}),
        "file_groups": len(base_files),
        "bytes": sum(base_file.size for base_file in base_files),
        "newest_commit": newest[0].completion_time if newest else None,
        "pending": [writer.instant for writer in pending],
        "dead_writers": [writer.instant for writer in pending if writer.alive is False],
    }


def describe_instant(table: HudiTable, requested_time: str) -> dict[str, Any]:
    """What is known of one instant: its states, its writer, its plan and its metadata.

    :param table: the table; nothing is written to it.
    :param requested_time: of an instant of the active timeline.
    :return: JSON-able; fields that say nothing are left out of ``plan`` and ``metadata``.
    :raises NoSuchInstantError: when the active timeline has no such instant, or it has just left it.
    """
    timeline = table.timeline()
    instant = timeline.find(requested_time)
    if instant is None:
        raise NoSuchInstantError(
            f"table {table.location}: instant {requested_time} is not on the active timeline; "
            "it was rolled back, archived, or never was",
            instant=requested_time,
        )
    entry = _entry_of(CommitLog(table.storage), requested_time)
    writer = next((each for each in pending_instants(table) if each.instant == requested_time), None)
    plan = timeline.plan(instant)
    done = timeline.read(instant) if instant.state is State.COMPLETED else b""
    return {
        "requested": requested_time,
        "completed": instant.completion_time,
        "action": str(instant.action),
        "state": str(instant.state),
        "operation": entry.operation if entry else writer.operation if writer else None,
        "priority": entry.priority if entry else writer.priority if writer else None,
        "owner": entry.owner if entry else writer.owner if writer else None,
        "alive": writer.alive if writer else None,
        "log_sequence": entry.sequence if entry else None,
        "plan": _told(plan),
        "metadata": _told(decode_any(done)) if done else None,  # an old Hudi's clean may be empty
    }


def _entry_of(log: CommitLog, requested_time: str) -> LogEntry | None:
    for entry in log.backwards():
        # A savepoint's instant is that of the commit that it keeps.
        if entry.instant == requested_time and entry.action is not Action.SAVEPOINT:
            return entry
        if entry.completion_time < requested_time:
            break
    return None


def _told(value: Any) -> Any:
    """A value without what says nothing: Hudi's records have many fields that are null."""
    if isinstance(value, dict):
        told = {name: _told(inner) for name, inner in value.items()}
        return {name: inner for name, inner in told.items() if inner not in (None, {}, [])}
    if isinstance(value, list):
        return [_told(inner) for inner in value]
    return value
