"""The progress of replications, for people and sensors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.exceptions import EventsExpiredError, TableServiceError
from airflow_provider.metastore import AnyMetastore, EventType, NotificationEvent
from airflow_provider.metastore.model import Phase, Replication
from airflow_provider.table import HudiTable

_MOST_COUNTED = 100_000
_MOST_READ = 1_000


@dataclass(frozen=True)
class ReplicationLag:
    """The lag of a target behind its source.

    :param policy: the replication.
    :param phase: the replication's phase: ``bootstrap``, ``following`` or ``failed over``.
    :param event_id: the last event of the source that the target has applied; None before the bootstrap is
        done.
    :param source_event_id: the last event of the source's log.
    :param events: the number of events to apply; None before the bootstrap is done.
    :param transactions: the number of these events that commit a transaction; None when the log has lost some
        of them.
    :param seconds: the age of the oldest of these events, 0 when there is none; None like ``transactions``.
    :param bytes_copied: the bytes that the replication has copied since its creation.
    :param bytes_left: the bytes of data files and log files that these transactions have written into the
        replicated databases; None like ``transactions``, and also when there are more than a thousand of
        these transactions, or one of their tables cannot be read.
    :param replicator: the replicator that has the lease; None when none has it.
    :param last_error: the error of the last pass; None when the pass succeeded.
    """

    policy: str
    phase: str
    event_id: int | None
    source_event_id: int
    events: int | None
    transactions: int | None
    seconds: float | None
    bytes_copied: int
    bytes_left: int | None
    replicator: str | None
    last_error: str | None

    def to_dict(self) -> dict[str, Any]:
        """The lag, JSON-able."""
        return asdict(self)


def replications(target: AnyMetastore) -> list[Replication]:
    """All replications into a metastore, by name.

    :param target: the metastore, by its database or by a server.
    """
    return target.replication_target().replications()


def replication_lag(
    policy: str,
    source: AnyMetastore,
    target: AnyMetastore,
    *,
    source_options: Mapping[str, Any] | None = None,
) -> ReplicationLag:
    """The present lag of a target behind its source.

    :param policy: the replication.
    :param source: the source's metastore, by its database or by a server.
    :param target: the target's metastore, by its database or by a server.
    :param source_options: keyword arguments of the fsspec file systems of the source's tables.
    :raises NoSuchObjectError: when there is no such replication.
    """
    known = target.replication_target().replication(policy)
    newest = source.current_event_id()
    events = transactions = left = None
    seconds = None
    if known.event_id is not None and known.phase is not Phase.BOOTSTRAP:
        events = max(0, newest - known.event_id)
        try:
            first = source.next_events(known.event_id, 1)
            commits = source.next_events(known.event_id, _MOST_COUNTED, event_types=[EventType.COMMIT_TXN])
        except EventsExpiredError:
            pass
        else:
            transactions = len(commits)
            left = _bytes_left(known, source, commits, source_options)
            seconds = max(0.0, time.time() - first[0].event_time) if first else 0.0
    return ReplicationLag(
        policy,
        str(known.phase),
        known.event_id,
        newest,
        events,
        transactions,
        seconds,
        known.bytes_copied,
        left,
        known.lease_owner,
        known.last_error,
    )


def _bytes_left(
    known: Replication,
    source: AnyMetastore,
    commits: Sequence[NotificationEvent],
    options: Mapping[str, Any] | None,
) -> int | None:
    """The bytes that these transactions have written; None when this is unknown."""
    if len(commits) > _MOST_READ:
        return None
    tables: dict[str, HudiTable] = {}
    left = 0
    try:
        for event in commits:
            for write in source.writes_of(int(event.message["txnid"])):
                if write.instant is None or write.database not in known.databases:
                    continue
                if write.location not in tables:
                    tables[write.location] = HudiTable.open(write.location, options)
                found = tables[write.location].find_commit(write.instant)
                left += sum(stat.file_size for stat in found[1].write_stats) if found else 0
    except (TableServiceError, OSError):
        return None
    return left
