"""The methods about replications, which Hive does not have: for a source, and for a target."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.model import NotificationEvent, Scope, decode_state, encode_state


class ReplicationHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore.
    """

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def get_replication_state(self, request: Any) -> bytes:
        names = {name.lower() for name in request.dbNames}
        state = self._metastore.replication_state(names, request.txnIds)
        return gzip.compress(encode_state(state).encode(), mtime=0)

    def serve_replicator(self, request: Any) -> bytes:
        """Call a method of :class:`ReplicationTarget` with arguments as zipped JSON."""
        called = _OPERATIONS.get(request.operation)
        if called is None:
            raise InvalidInputError(
                f"a replicator asks for {request.operation!r}, which this server does not know; upgrade the "
                "server to the replicator's release"
            )
        try:
            arguments = json.loads(gzip.decompress(request.arguments))
        except (OSError, EOFError, ValueError) as error:
            raise InvalidInputError(
                f"arguments of {request.operation!r} are no zipped JSON: {error}"
            ) from error
        answer = called(self._metastore.replication_target(), *arguments)
        return gzip.compress(json.dumps(answer).encode(), mtime=0)


def _scope(read: Mapping[str, Any]) -> Scope:
    return Scope(read["policy"], read["databases"], read["locations"])


def _same(name: str) -> Callable[..., Any]:
    """A method whose arguments and answer are JSON as they are."""
    return lambda target, *arguments: getattr(target, name)(*arguments)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "replications": lambda target: [asdict(each) for each in target.replications()],
    "replication": lambda target, policy: asdict(target.replication(policy)),
    "begin": lambda target, policy, source, databases, is_same: asdict(
        target.begin(policy, source, databases, is_same=is_same)
    ),
    "apply_events": lambda target, scope, events: target.apply_events(
        _scope(scope), [NotificationEvent(**each) for each in events]
    ),
    "bring_over": lambda target, scope, state: target.bring_over(_scope(scope), decode_state(state)),
    **{
        name: _same(name)
        for name in (
            "restart",
            "keep_lease",
            "release_lease",
            "note_error",
            "add_bytes",
            "mapped_txns",
            "last_write_id",
        )
    },
}
