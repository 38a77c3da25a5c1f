"""The state of each replication into this metastore: its phase, its position, and its lease."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError, ReplicationLeaseError
from airflow_provider.metastore.catalog import catalog
from airflow_provider.metastore.database import current_millis, insert_if_absent, replications
from airflow_provider.metastore.model import TARGET_FOR, NotificationEvent, Phase, Replication


def begin_policy(
    connection: Connection,
    policy: str,
    source: str,
    databases: Mapping[str, str],
    *,
    is_same: bool = False,
) -> Replication:
    """Create a replication, or look it up and add the databases that are new.

    :param source: the source's URL.
    :param is_same: whether this is the replication's source, if its URL is another one than before.
    :raises InvalidInputError: when the replication has another source, or would lose a database, or when two
        replications would have the same target.
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
    if known.source != source and is_same:
        connection.execute(update(replications).where(_is(policy)).values(source=source))
    elif known.source != source:
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
        # The bootstrap copies the new databases, and leaves what the target already has as it is.
        changes = {"databases": dict(databases), "phase": Phase.BOOTSTRAP}
        connection.execute(update(replications).where(_is(policy)).values(**changes))
    return find_policy(connection, policy)


def ensure_policy_of_client(connection: Connection, policy: str) -> None:
    """Create a policy by which a client of the server maps transactions; the client keeps its position."""
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
    """Look up a replication.

    :param lock: True to keep others from moving its position until this database transaction ends.
    :raises NoSuchObjectError: when there is no such replication.
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


def keep_lease(connection: Connection, policy: str, owner: str, seconds: float) -> None:
    """Take the lease of a replication, or renew it.

    The lease keeps two replicators from doing the same work. Safety does not depend on it, because every step
    may be done twice.

    :param owner: the replicator that takes the lease; the same name renews it.
    :param seconds: the lease's duration by the database's clock; then another replicator may take it.
    :raises ReplicationLeaseError: when another replicator has it.
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
    """Give the lease back, if the replicator still has it."""
    connection.execute(
        update(replications)
        .where(_is(policy), replications.c.lease_owner == owner)
        .values(lease_owner=None, lease_until=None)
    )


def move_position(
    connection: Connection, policy: str, events: Sequence[NotificationEvent]
) -> list[NotificationEvent]:
    """Record that events are applied, in the database transaction that applies them.

    :param events: in the order of the log.
    :return: the events that are to be applied: the others were applied before.
    :raises InvalidInputError: when the event before was not applied, or the replication has ended.
    """
    known = find_policy(connection, policy, lock=True)
    new = [each for each in events if known.event_id is None or each.event_id > known.event_id]
    if not new:
        return []
    position = known.event_id or 0
    follows = all(each.event_id == position + number for number, each in enumerate(new, 1))
    if known.phase is not Phase.FOLLOWING or not follows:
        raise InvalidInputError(
            f"replication {policy!r} is at {known.phase}, event {known.event_id}: events "
            f"{', '.join(str(each.event_id) for each in new)} cannot follow",
            policy=policy,
        )
    last = new[-1]
    values = {"event_id": last.event_id, "event_time": last.event_time, "updated_at": current_millis()}
    connection.execute(update(replications).where(_is(policy)).values(**values))
    return new


def set_phase(connection: Connection, policy: str, phase: Phase, *, event_id: int | None = None) -> None:
    """Put a replication into another phase.

    :param event_id: the new position, whose event's time is not known; None to keep the present one.
    """
    values: dict[str, Any] = {"phase": phase, "updated_at": current_millis()}
    if event_id is not None:
        values |= {"event_id": event_id, "event_time": None}
    connection.execute(update(replications).where(_is(policy)).values(**values))


def forget_policy(connection: Connection, policy: str) -> None:
    """Delete a replication's record; none of its transactions is mapped any more."""
    connection.execute(delete(replications).where(_is(policy)))


def target_databases(connection: Connection, policy: str) -> list[str]:
    """The databases that are the target of a replication."""
    found = catalog.all_databases(connection)
    return [each.name for each in found if each.parameters.get(TARGET_FOR) == policy]


def set_parameters(
    connection: Connection, databases: Iterable[str], changes: Mapping[str, str | None]
) -> None:
    """Change parameters of some databases, as the replicator.

    :param changes: the new values; None removes a parameter.
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
    """Record the error of the last pass; None when it succeeded."""
    connection.execute(
        update(replications).where(_is(policy)).values(last_error=error, updated_at=current_millis())
    )


def add_bytes(connection: Connection, policy: str, copied: int) -> None:
    """Add copied bytes to the replication's count."""
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
