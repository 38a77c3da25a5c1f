"""The two metastores of a replication: how each is given, and whether the source is the right one."""

from __future__ import annotations

from contextlib import suppress

from airflow_provider.exceptions import (
    EventsExpiredError,
    InvalidInputError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from airflow_provider.metastore import AnyMetastore, Metastore


def consumer_of(policy: str) -> str:
    """The name of a replication as a consumer of the source's notification log."""
    return f"replication-{policy}"


def is_same_metastore(one: AnyMetastore, other: AnyMetastore) -> bool:
    """Whether two metastores are given by one database, or by one server's URL."""
    if isinstance(one, Metastore) and isinstance(other, Metastore):
        return one.sql is other.sql
    return one.url == other.url


def register_consumer(
    policy: str, source: AnyMetastore, target: AnyMetastore, patience_seconds: float
) -> None:
    """Make the replication a consumer of the source's log, from the log's end on.

    :param patience_seconds: seconds of silence after which the log no longer waits for the replication.
    :raises InvalidInputError: when both sides are one metastore; server URLs alone do not show this.
    :raises UnsupportedByServerError: when the source is a Hive Metastore.
    """
    name = consumer_of(policy)
    try:
        source.register_consumer(name, expiry_seconds=patience_seconds, if_not_exists=True)
    except UnsupportedByServerError as error:
        raise UnsupportedByServerError(
            f"replication {policy!r} cannot follow {source.url}: a Hive has no consumers, for which its log "
            "would keep events, and no request for the state of whole databases; give a server of this "
            "package, or the URL of its database",
            policy=policy,
            method=error.details.get("method"),
        ) from error
    if source.restart_consumer(name) in target.consumers():
        target.unregister_consumer(name)
        raise is_its_own_source(policy)


def is_its_own_source(policy: str) -> InvalidInputError:
    """The error for a replication whose target is its source."""
    return InvalidInputError(f"replication {policy!r}: source and target are one metastore", policy=policy)


def is_source_of(policy: str, source: AnyMetastore, target: AnyMetastore) -> bool:
    """Whether a replication follows a metastore, by this URL or by another one.

    A source may be given by its database, or by a server of it. A metastore with another URL is the same
    source if its log has the replication as a consumer at the target's position. Also, the event at that
    position must have the same time, unless retention has removed the event.

    :param target: the target's metastore.
    """
    try:
        known = target.replication_target().replication(policy)
    except NoSuchObjectError:
        return False
    if known.source == source.url:
        return True
    positions = {one.name: one.event_id for one in source.consumers()}
    if not known.event_id or positions.get(consumer_of(policy)) != known.event_id:
        return False
    with suppress(EventsExpiredError):
        [event] = source.next_events(known.event_id - 1, 1)
        return known.event_time in (None, event.event_time)
    return True
