"""How far each replication into this metastore is, and who is at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError, ReplicationLeaseError
from airflow_provider.metastore.catalog import catalog
from airflow_provider.metastore.database import current_millis, insert_if_absent, replications


class Phase(StrEnum):
    """What a replication is at."""

    BOOTSTRAP = "bootstrap"
    """The state of the source is brought over; the target has no position yet, or no usable one."""
    FOLLOWING = "following"
    """The source's events are applied."""
    FAILED_OVER = "failed over"
    """The target was made the source; nothing is applied any more."""


@dataclass(frozen=True)
class Replication:
    """A replication, as its target knows it.

    :param policy: its name.
    :param source: the source metastore's URL, without secrets.
    :param databases: the target's database by the source's.
    :param phase: what it is at.
    :param event_id: the source's last event that is applied; None before the bootstrap is done.
    :param event_time: when that event happened, in seconds since the epoch by the source's clock.
    :param lease_owner: who is at it; None when nobody is.
    :param bytes_copied: since it exists.
    :param last_error: of the last pass; None when that went well.
    :param updated_at: seconds since the epoch, by the target database's clock.
    """

    policy: str
    source: str
    databases: Mapping[str, str]
    phase: Phase
    event_id: int | None
    event_time: int | None
    lease_owner: str | None
    bytes_copied: int
    last_error: str | None
    updated_at: float


def begin_policy(
    connection: Connection, policy: str, source: str, databases: Mapping[str, str]
) -> Replication:
    """A replication, made when it is not there; its databases may become more.

    :raises InvalidInputError: when it is one of another source, or loses a database, or two replications
        would have one target.
    """
    values = {
        "policy": policy,
        "source": source,
        "databases": dict(databases),
        "phase": Phase.BOOTSTRAP,
        "bytes_copied": 0,
        "updated_at": current_millis(),
    }
    for other in policies(connection):
        if other.policy == policy or other.phase is Phase.FAILED_OVER:
            continue
        if common := sorted({*other.databases.values()} & {*databases.values()}):
            raise InvalidInputError(
                f"replication {policy!r}: database {common[0]!r} is the target of {other.policy!r} already",
                policy=policy,
            )
    insert_if_absent(connection, replications, values)
    known = find_policy(connection, policy, lock=True)
    if known.source != source:
        raise InvalidInputError(
            f"replication {policy!r} follows {known.source}, not {source}; give the new one another name",
            policy=policy,
        )
    changed = {name for name, target in known.databases.items() if databases.get(name) != target}
    if changed:
        raise InvalidInputError(
            f"replication {policy!r} brings {min(changed)!r} to {known.databases[min(changed)]!r}; give it "
            "the same databases, or more, or another name",
            policy=policy,
        )
    if dict(known.databases) != dict(databases):
        # What came later is bootstrapped, and what is there is left as it is.
        changes = {"databases": dict(databases), "phase": Phase.BOOTSTRAP}
        connection.execute(update(replications).where(_is(policy)).values(**changes))
    return find_policy(connection, policy)


def ensure_policy_of_client(connection: Connection, policy: str) -> None:
    """Make a policy by which a client of the server maps transactions; it keeps its position itself."""
    values = {
        "policy": policy,
        "source": "a client of the server",
        "databases": {},
        "phase": Phase.FOLLOWING,
        "bytes_copied": 0,
        "updated_at": current_millis(),
    }
    insert_if_absent(connection, replications, values)


def find_policy(connection: Connection, policy: str, *, lock: bool = False) -> Replication:
    """Look a replication up.

    :param lock: keep others from moving it until this database transaction ends.
    :raises NoSuchObjectError: when there is none.
    """
    query = select(replications).where(_is(policy))
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NoSuchObjectError(f"there is no replication {policy!r} into this metastore", policy=policy)
    return _replication(row)


def policies(connection: Connection) -> list[Replication]:
    """All replications into this metastore, by name."""
    rows = connection.execute(select(replications).order_by(replications.c.policy))
    return [_replication(row) for row in rows]


def drop_policy(connection: Connection, policy: str) -> None:
    """Forget a replication; what it brought stays."""
    connection.execute(delete(replications).where(_is(policy)))


def keep_lease(connection: Connection, policy: str, owner: str, seconds: float) -> None:
    """Take the lease of a replication, or renew it.

    It saves two replicators the same work. What keeps them from harm is that every step may be done twice.

    :param owner: who takes it; the same name renews it.
    :param seconds: after which another one may take it, by the database's clock.
    :raises ReplicationLeaseError: when another one has it.
    """
    free = (
        replications.c.lease_owner.is_(None)
        | (replications.c.lease_owner == owner)
        | (replications.c.lease_until < current_millis())
    )
    taken = connection.execute(
        update(replications)
        .where(_is(policy), free)
        .values(lease_owner=owner, lease_until=current_millis() + int(seconds * 1000))
        .returning(replications.c.policy)
    ).first()
    if taken is None:
        holder = find_policy(connection, policy).lease_owner
        raise ReplicationLeaseError(
            f"replication {policy!r}: {holder} is at it; wait for its end, or for {seconds:g} s after its "
            "death",
            policy=policy,
            owner=holder,
        )


def release_lease(connection: Connection, policy: str, owner: str) -> None:
    """Give the lease back, if one still has it."""
    connection.execute(
        update(replications)
        .where(_is(policy), replications.c.lease_owner == owner)
        .values(lease_owner=None, lease_until=None)
    )


def move_position(connection: Connection, policy: str, event_id: int, event_time: int) -> bool:
    """Record, in the database transaction in which an event is applied, that it is.

    :return: False when it, or a later one, was applied already: then the caller applies nothing.
    :raises InvalidInputError: when the event before was not applied, or nothing is to be applied any more.
    """
    known = find_policy(connection, policy, lock=True)
    if known.event_id is not None and known.event_id >= event_id:
        return False
    if known.phase is not Phase.FOLLOWING or known.event_id != event_id - 1:
        raise InvalidInputError(
            f"replication {policy!r} is at {known.phase}, event {known.event_id}: event {event_id} cannot "
            "follow",
            policy=policy,
        )
    values = {"event_id": event_id, "event_time": event_time, "updated_at": current_millis()}
    connection.execute(update(replications).where(_is(policy)).values(**values))
    return True


def set_phase(connection: Connection, policy: str, phase: Phase, *, event_id: int | None = None) -> None:
    """Bring a replication into another phase.

    :param event_id: its position from now on; the one that it has when None.
    """
    values: dict[str, Any] = {"phase": phase, "updated_at": current_millis()}
    if event_id is not None:
        values["event_id"] = event_id
    connection.execute(update(replications).where(_is(policy)).values(**values))


def set_parameters(
    connection: Connection, databases: Iterable[str], changes: Mapping[str, str | None]
) -> None:
    """Change parameters of some databases, as the replicator.

    :param changes: the new values; None takes a parameter away.
    """
    there = {one.name: one for one in catalog.all_databases(connection)}
    for name in databases:
        if (known := there.get(name)) is None:
            continue
        merged = {**known.parameters, **changes}
        parameters = {key: value for key, value in merged.items() if value is not None}
        if parameters != known.parameters:
            catalog.alter_database(connection, name, changes={"parameters": parameters})


def note_error(connection: Connection, policy: str, error: str | None) -> None:
    """Record how the last pass ended."""
    connection.execute(
        update(replications).where(_is(policy)).values(last_error=error, updated_at=current_millis())
    )


def add_bytes(connection: Connection, policy: str, copied: int) -> None:
    """Count bytes that were copied."""
    connection.execute(
        update(replications).where(_is(policy)).values(bytes_copied=replications.c.bytes_copied + copied)
    )


def _is(policy: str) -> Any:
    return replications.c.policy == policy


def _replication(row: Row[Any]) -> Replication:
    return Replication(
        row.policy,
        row.source,
        row.databases,
        Phase(row.phase),
        row.event_id,
        row.event_time,
        row.lease_owner,
        row.bytes_copied,
        row.last_error,
        row.updated_at / 1000,
    )
