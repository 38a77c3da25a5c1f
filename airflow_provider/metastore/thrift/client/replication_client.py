"""The requests of a replicator to its target, and of a failover to both sides, by a metastore server."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider.metastore.model import (
    NotificationEvent,
    Phase,
    Replication,
    Scope,
    SourceState,
    encode_state,
)
from airflow_provider.metastore.thrift.client.connections import ThriftConnections
from airflow_provider.metastore.thrift.protocol import hive


class TargetByServer:
    """See :class:`~airflow_provider.metastore.interface.ReplicationTarget`.

    :param server: connections to the server.
    """

    def __init__(self, server: ThriftConnections) -> None:
        self._server = server

    def replications(self) -> list[Replication]:
        """See :meth:`ReplicationTarget.replications`."""
        return [_replication(each) for each in self._ask("replications")]

    def replication(self, policy: str) -> Replication:
        """See :meth:`ReplicationTarget.replication`."""
        return _replication(self._ask("replication", policy))

    def begin(
        self, policy: str, source: str, databases: Mapping[str, str], *, is_same: bool = False
    ) -> Replication:
        """See :meth:`ReplicationTarget.begin`."""
        return _replication(self._ask("begin", policy, source, dict(databases), is_same))

    def restart(self, policy: str) -> None:
        """See :meth:`ReplicationTarget.restart`."""
        self._ask("restart", policy)

    def keep_lease(self, policy: str, owner: str, seconds: float) -> None:
        """See :meth:`ReplicationTarget.keep_lease`."""
        self._ask("keep_lease", policy, owner, seconds)

    def release_lease(self, policy: str, owner: str) -> None:
        """See :meth:`ReplicationTarget.release_lease`."""
        self._ask("release_lease", policy, owner)

    def note_error(self, policy: str, error: str | None) -> None:
        """See :meth:`ReplicationTarget.note_error`."""
        self._ask("note_error", policy, error)

    def add_bytes(self, policy: str, copied: int) -> None:
        """See :meth:`ReplicationTarget.add_bytes`."""
        self._server.write("serve_replicator", _request("add_bytes", policy, copied))

    def mapped_txns(self, policy: str) -> dict[int, int]:
        """See :meth:`ReplicationTarget.mapped_txns`."""
        return {int(source): target for source, target in self._ask("mapped_txns", policy).items()}

    def apply_events(self, scope: Scope, events: Sequence[NotificationEvent]) -> None:
        """See :meth:`ReplicationTarget.apply_events`."""
        self._ask("apply_events", asdict(scope), [asdict(each) for each in events])

    def bring_over(self, scope: Scope, state: SourceState) -> None:
        """See :meth:`ReplicationTarget.bring_over`."""
        self._ask("bring_over", asdict(scope), encode_state(state))

    def last_write_id(self, database: str, table: str) -> int:
        """See :meth:`ReplicationTarget.last_write_id`."""
        return int(self._ask("last_write_id", database, table))

    def freeze(self, policy: str, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.freeze`."""
        self._ask("freeze", policy, list(databases))

    def thaw(self, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.thaw`."""
        self._ask("thaw", list(databases))

    def open_writers(self, databases: Collection[str]) -> list[int]:
        """See :meth:`ReplicationTarget.open_writers`."""
        return list(self._ask("open_writers", list(databases)))

    def take_over(self, policy: str, databases: Collection[str]) -> None:
        """See :meth:`ReplicationTarget.take_over`."""
        self._ask("take_over", policy, list(databases))

    def forget(self, policy: str) -> None:
        """See :meth:`ReplicationTarget.forget`."""
        self._ask("forget", policy)

    def follow_back(self, policy: str, source: str, databases: Mapping[str, str]) -> None:
        """See :meth:`ReplicationTarget.follow_back`."""
        self._ask("follow_back", policy, source, dict(databases))

    def _ask(self, operation: str, *arguments: Any) -> Any:
        answer = self._server.read("serve_replicator", _request(operation, *arguments))
        return json.loads(gzip.decompress(answer))


def _request(operation: str, *arguments: Any) -> Any:
    return hive.ReplicatorRequest(
        operation=operation, arguments=gzip.compress(json.dumps(arguments).encode(), mtime=0)
    )


def _replication(read: dict[str, Any]) -> Replication:
    return Replication(**{**read, "phase": Phase(read["phase"])})
