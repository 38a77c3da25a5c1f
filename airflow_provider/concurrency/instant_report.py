"""Reports of what a table holds and what an instant did, for people on call."""

from __future__ import annotations

from typing import Any

from airflow_provider.concurrency.conflicts import has_other_writers, pending_instants
from airflow_provider.concurrency.log import Commit, CommitLog, LogEntry, Savepoint
from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.file_groups import looking_again
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action, Instant, State, Timeline, decode_any, find_archived


@looking_again
def describe_table(table: HudiTable) -> dict[str, Any]:
    """The configuration of a table, and what it holds now.

    :param table: the table; nothing is written to it.
    :return: JSON-able: ``location``, ``name``, ``type``, ``version``, ``timeline_layout``,
        ``record_key``, ``partition_by``, ``ordering``, ``metadata_partitions``, ``columns``,
        ``partitions``, ``file_groups``, ``bytes``, ``newest_commit``, ``pending``, ``dead_writers``,
        ``other_writers`` (whether another Hudi writer has ever been seen to commit).
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
        "other_writers": has_other_writers(table.storage),
    }


def describe_instant(table: HudiTable, requested_time: str) -> dict[str, Any]:
    """All that is known about one instant: its states, its writer, its plan and its metadata.

    :param table: the table; nothing is written to it.
    :param requested_time: requested time of an instant on the active or the archived timeline, or of an index
        build.
    :return: JSON-able; ``timeline`` is ``active``, ``archived``, or ``none`` for a completed index build,
        which only the commit log knows; ``plan`` and ``metadata`` have no empty fields.
    :raises NoSuchInstantError: when neither timeline has such an instant, and no index was built under it.
    """
    instant, plan, done = _active(table.timeline(), requested_time)
    is_active = instant is not None
    if instant is None:
        archived = find_archived(table.storage, requested_time, table.config.layout)
        entry = _entry_of(CommitLog(table.storage), requested_time) if archived is None else None
        if entry is not None and entry.action is Action.INDEXING and isinstance(entry, Commit):
            return _index_change(entry)
        if archived is None:
            raise NoSuchInstantError(
                f"table {table.location}: instant {requested_time} is neither on the active timeline nor on "
                "the archived one; it was rolled back, or never existed",
                instant=requested_time,
            )
        instant, done = archived.instant, archived.metadata
        plan = decode_any(archived.plan) if archived.plan else None
    entry = _entry_of(CommitLog(table.storage), requested_time)
    writer = next((each for each in pending_instants(table) if each.instant == requested_time), None)
    metadata = _told(decode_any(done)) if done else None  # a clean of an old Hudi release may be empty
    # Without a log entry, which may have been trimmed, the heartbeat or the metadata names the operation.
    told = entry or writer
    operation = told.operation if told else (metadata or {}).get("operationType")
    return {
        "requested": requested_time,
        "completed": instant.completion_time,
        "action": str(instant.action),
        "state": str(instant.state),
        "timeline": "active" if is_active else "archived",
        "operation": operation,
        "priority": told.priority if told else None,
        "owner": told.owner if told else None,
        "alive": writer.alive if writer else None,
        "log_sequence": entry.sequence if entry else None,
        "plan": _told(plan),
        "metadata": metadata,
    }


def _index_change(entry: Commit) -> dict[str, Any]:
    """The description of a completed build or drop of indexes, which only the commit log knows."""
    return {
        "requested": entry.instant,
        "completed": entry.completion_time,
        "action": str(entry.action),
        "state": str(State.COMPLETED),
        "timeline": "none",
        "operation": entry.operation,
        "priority": entry.priority,
        "owner": entry.owner,
        "alive": None,
        "log_sequence": entry.sequence,
        "plan": None,
        "metadata": {
            "indexes": {
                each.partition: f"{each.file_groups} file groups"
                for each in entry.indexes or ()
                if each.instant == entry.instant
            }
        },
    }


def _active(timeline: Timeline, requested_time: str) -> tuple[Instant | None, Any, bytes | None]:
    """An instant of the active timeline, its plan, and the content of its completed file."""
    instant = timeline.find(requested_time)
    if instant is None:
        return None, None, None
    try:
        done = timeline.read(instant) if instant.state is State.COMPLETED else None
        return instant, timeline.plan(instant), done
    except NoSuchInstantError:  # it was just archived
        return None, None, None


def _entry_of(log: CommitLog, requested_time: str) -> LogEntry | None:
    own = (entry for entry in log.about(requested_time) if entry.instant == requested_time)
    # A savepoint's instant is that of the commit that it keeps.
    return next((entry for entry in own if not isinstance(entry, Savepoint)), None)


def _told(value: Any) -> Any:
    """A value without empty fields: Hudi's records have many fields that are null."""
    if isinstance(value, dict):
        told = {name: _told(inner) for name, inner in value.items()}
        return {name: inner for name, inner in told.items() if inner not in (None, {}, [])}
    if isinstance(value, list):
        return [_told(inner) for inner in value]
    return value
