"""Databases that are the target of a replication: nobody but their replicator changes them.

Such a database has Hive's parameter ``repl.target.for``, with the name of the policy. During a failover a
database of the source has ``repl.source.frozen.by``: its writers are stopped, so that the target can become
the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from airflow_provider.exceptions import ReplicationTargetError
from airflow_provider.metastore.model import FROZEN_BY, TARGET_FOR

_replicator: ContextVar[bool] = ContextVar("is_replicator", default=False)
_ends_transaction: ContextVar[bool] = ContextVar("ends_transaction", default=False)


@contextmanager
def as_replicator() -> Iterator[None]:
    """Mark the changes inside as the replicator's, which may change the targets of replications."""
    token = _replicator.set(True)
    try:
        yield
    finally:
        _replicator.reset(token)


@contextmanager
def ending_transaction() -> Iterator[None]:
    """Mark the changes inside as the end of a transaction, which a failover waits for and does not refuse."""
    token = _ends_transaction.set(True)
    try:
        yield
    finally:
        _ends_transaction.reset(token)


def is_replicator() -> bool:
    """Whether the caller is inside :func:`as_replicator`."""
    return _replicator.get()


def check_writable(database: str, parameters: Mapping[str, str]) -> None:
    """Check that the caller may change a database.

    :param database: the database's name.
    :param parameters: the database's parameters.
    :raises ReplicationTargetError: when the database is the target of a replication, or its writers are
        stopped for a failover.
    """
    if is_replicator():
        return
    if policy := parameters.get(TARGET_FOR):
        raise ReplicationTargetError(
            f"database {database!r} is the target of replication {policy!r} ({TARGET_FOR}) and is changed by "
            "its replicator only; write to the source, or make this side the source: table-services failover",
            database=database,
            policy=policy,
        )
    if (policy := parameters.get(FROZEN_BY)) and not _ends_transaction.get():
        raise ReplicationTargetError(
            f"database {database!r} is being handed over to the target of replication {policy!r} "
            f"({FROZEN_BY}): its writers are stopped; write to the target after the failover, or abort that: "
            "table-services failover --abort",
            database=database,
            policy=policy,
        )
