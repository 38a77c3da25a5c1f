"""The progress of replications, for people and sensors."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.exceptions import EventsExpiredError
from airflow_provider.metastore import AnyMetastore, EventType
from airflow_provider.metastore.model import Phase, Replication

_MOST_COUNTED = 100_000


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
    :param seconds: the age of the oldest of these events, 0 when there is none; None as ``transactions``.
    :param bytes_copied: the bytes that the replication has copied since its creation.
    :param replicator: the replicator that has the lease; None when nobody has it.
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


def replication_lag(policy: str, source: AnyMetastore, target: AnyMetastore) -> ReplicationLag:
    """The present lag of a target behind its source.

    :param policy: the replication.
    :param source: the source's metastore, by its database or by a server.
    :param target: the target's metastore, by its database or by a server.
    :raises NoSuchObjectError: when there is no such replication.
    """
    known = target.replication_target().replication(policy)
    newest = source.current_event_id()
    events = transactions = None
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
        known.lease_owner,
        known.last_error,
    )
