"""The end of a replication for good: its target becomes a database like any other."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.concurrency.readers import forget_consumer
from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore import AnyMetastore
from airflow_provider.metastore.model import FROZEN_BY, Phase
from airflow_provider.replication.failovers import settle_table
from airflow_provider.replication.hudi_tables import is_hudi_table
from airflow_provider.replication.sides import consumer_of, is_source_of
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage

log = logging.getLogger(__name__)

_LEASE_SECONDS = 60.0


@dataclass(frozen=True)
class EndedReplication:
    """The state of a replication when it ended.

    :param policy: the replication.
    :param event_id: the last event of the source that the target has applied; None when its bootstrap was not
        done.
    :param databases: the databases that are no longer a target.
    :param aborted: the transactions of the source that were open; the target has no data of them.
    """

    policy: str
    event_id: int | None
    databases: tuple[str, ...]
    aborted: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The end, JSON-able."""
        return asdict(self)


def end_replication(
    policy: str,
    target: AnyMetastore,
    *,
    source: AnyMetastore | None = None,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> EndedReplication:
    """End a replication for good. If the call is killed, a second call finishes it.

    The target keeps its tables at its last whole transaction, and takes writes from then on. The source's
    log, cleans and archivals no longer wait for the replication. A replication of the same name may begin
    anew, into databases that do not exist yet.

    :param policy: the replication's name.
    :param target: the target's metastore.
    :param source: the source's metastore, if it still answers. Without it, the source waits until the
        replication's patience ends (``ReplicationSettings.patience_seconds``).
    :param source_options: keyword arguments of the source's fsspec file systems.
    :param target_options: keyword arguments of the target's fsspec file systems.
    :raises NoSuchObjectError: when there is no such replication into the target.
    :raises InvalidInputError: when the source is not the replication's source.
    :raises ReplicationLeaseError: when a replicator is running; stop it first.
    :raises ReplicationError: when a commit whose transaction was not committed cannot be undone.
    """
    records = target.replication_target()
    known = records.replication(policy)
    if source is not None and not is_source_of(policy, source, target):
        raise InvalidInputError(
            f"replication {policy!r} follows {known.source}, not {source.url}; give that one, or none",
            policy=policy,
        )
    records.keep_lease(policy, f"{socket.gethostname()}:{uuid.uuid4().hex[:8]}", _LEASE_SECONDS)
    opened, databases = sorted(records.mapped_txns(policy)), sorted(known.databases.values())
    if known.phase is not Phase.FAILED_OVER:  # after a failover, the target is a source
        for each in target.replication_state(databases).tables:
            settle_table(policy, target_options or {}, each.table, each.write_ids)
    if source is not None:
        _release_source(policy, source, sorted(known.databases), source_options or {})
    records.forget(policy)
    log.info("replication %s has ended: %s takes writes now", policy, target.url)
    return EndedReplication(policy, known.event_id, tuple(databases), tuple(opened))


def _release_source(
    policy: str, source: AnyMetastore, databases: list[str], options: Mapping[str, Any]
) -> None:
    """Make the source's log, cleans and archivals wait no longer, and admit its writers again."""
    for name in databases:
        with suppress(NoSuchObjectError):
            if source.get_database(name).parameters.get(FROZEN_BY) == policy:
                source.replication_target().thaw([name])
    for each in source.replication_state(databases).tables:
        if each.table.location and is_hudi_table(storage := Storage(each.table.location, options)):
            forget_consumer(HudiTable.at(storage), consumer_of(policy))
    with suppress(NoSuchObjectError):
        source.unregister_consumer(consumer_of(policy))
