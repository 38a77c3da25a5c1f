"""Readers for which a cleaner keeps files: leases, and consumers with a checkpoint.

A *lease* is a reader's heartbeat, ``.hoodie/.readers/<time>``. While the reader renews it, the cleaner keeps
every file that was visible when the lease began or later. A *consumer* reads a table in increments, perhaps
days apart. It registers the checkpoint up to which it has read, ``.hoodie/.consumers/<name>``. The cleaner
keeps every later state of the table, until the consumer moves its checkpoint or expires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider.concurrency.commit import publish_head
from airflow_provider.concurrency.heartbeats import Heartbeat, HeartbeatInfo, HeartbeatSettings
from airflow_provider.concurrency.log import CommitLog
from airflow_provider.exceptions import InvalidInputError, SnapshotUnavailableError
from airflow_provider.table.file_groups import FileSystemView, missing_file
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, Timeline, after, now, parse_time

READERS_FOLDER = ".hoodie/.readers"
CONSUMERS_FOLDER = ".hoodie/.consumers"

WEEK = 7 * 24 * 3600.0


class ReaderLease(Heartbeat):
    """A reader's heartbeat, with the snapshot at which the read began.

    :param view: the table when the read began.
    """

    def __init__(self, storage: Storage, name: str, info: HeartbeatInfo, view: FileSystemView) -> None:
        super().__init__(storage, name, info, folder=READERS_FOLDER)
        self._view = view

    def check(self) -> None:
        """Make sure that every file that was visible when the lease began is still there.

        :raises HeartbeatExpiredError: when the lease was lost, because this process was paused for too long.
        :raises SnapshotUnavailableError: when another Hudi writer, which knows no leases, has cleaned some of
            the files; the error names the clean.
        """
        super().check()
        timeline, began = Timeline.load(self._storage), self._view.timeline.newest_completion
        cleans = (instant for instant in timeline.completed() if instant.action is Action.CLEAN)
        if not any((instant.completion_time or "") > began for instant in cleans):
            return
        if found := missing_file(self._storage, self._view, timeline):
            path, clean = found
            raise SnapshotUnavailableError(
                f"table {self._storage.root}: clean {clean.requested_time} of another Hudi writer, which "
                f"knows no leases, has taken {path}; read again, and let that writer keep more commits "
                "(hoodie.clean.commits.retained)",
                instant=clean.requested_time,
                path=path,
            )


@contextmanager
def reader_lease(table: HudiTable, *, heartbeat: HeartbeatSettings | None = None) -> Iterator[ReaderLease]:
    """Protect the files that a reader is about to read from cleaning, for the time of a ``with`` block.

    ::

        with reader_lease(table) as lease:
            rows = snapshot(table).to_table()
            lease.check()     # after a long read: nothing was taken away meanwhile

    The lease protects files that are visible when it begins, or later. Files of an earlier snapshot may be
    cleaned already, or while they are read.

    :param table: the table. The lease is written to it, and an entry that its writer left unpublished is
        published.
    :param heartbeat: how the reader shows that it is alive; after too many missed beats the lease is lost.
    :return: the lease; see :meth:`ReaderLease.check`.
    """
    storage = table.storage
    newest = publish_head(storage, CommitLog(storage))
    base = newest.sequence if newest else 0
    info = HeartbeatInfo.of_this_process("", "READ", settings=heartbeat, base=base)
    name = now()
    while not storage.put_if_absent(_lease_path(name), info.to_json()):
        name = after(name)
    lease = ReaderLease(storage, name, info, table.view())
    try:
        yield lease
    finally:
        lease.stop()
        storage.delete(_lease_path(name))


def _lease_path(name: str) -> str:
    return f"{READERS_FOLDER}/{name}"


@dataclass(frozen=True)
class TableConsumer:
    """A registered reader of a table in increments.

    :param name: unique in the table.
    :param checkpoint: the instant time up to which it has read; the cleaner keeps every later state.
    :param expires_after: seconds after its last registration at which it expires.
    :param age_seconds: seconds since its last registration.
    """

    name: str
    checkpoint: str
    expires_after: float
    age_seconds: float

    @property
    def is_expired(self) -> bool:
        """Whether the cleaner keeps nothing for it any more."""
        return self.age_seconds > self.expires_after


def register_consumer(table: HudiTable, name: str, checkpoint: str, *, expires_after: float = WEEK) -> None:
    """Register a consumer's checkpoint. The consumer calls this again after each increment.

    ::

        found = increment(table, checkpoint)
        ...                                            # process found.scanner()
        register_consumer(table, "billing", found.end)

    :param table: the table.
    :param name: the consumer's name: letters, digits, ``_``, ``.`` and ``-``.
    :param checkpoint: the ``end`` of its last :func:`~airflow_provider.table.reading.increment`.
    :param expires_after: seconds after which the consumer expires unless it registers again.
    :raises InvalidInputError: when the name has another character, the checkpoint is not an instant time,
        or the expiry is not above zero.
    """
    if not re.fullmatch(r"\w[\w.-]*", name) or expires_after <= 0:
        raise InvalidInputError(
            "a consumer has a name of letters, digits, _, . and -, and expires_after above 0 seconds, "
            f"not {name!r} and {expires_after!r}"
        )
    parse_time(checkpoint)
    content = {"checkpoint": checkpoint, "expires_after": expires_after}
    table.storage.put(_consumer_path(name), json.dumps(content).encode())


def forget_consumer(table: HudiTable, name: str) -> bool:
    """Remove a consumer, so that the cleaner keeps nothing for it any more.

    :return: False when there was no consumer of this name.
    """
    return table.storage.delete(_consumer_path(name))


def registered_consumers(storage: Storage) -> list[TableConsumer]:
    """All consumers of a table, including expired ones, in the order of their names.

    :param storage: the table's storage.
    """
    statuses = storage.list(CONSUMERS_FOLDER)
    if not statuses:
        return []
    found, now = [], storage.clock(anew=True)
    for status in statuses:
        try:
            content = json.loads(storage.read(status.path))
        except FileNotFoundError:
            continue  # just removed
        age = max(0.0, now - status.modified)
        found.append(TableConsumer(status.name, content["checkpoint"], content["expires_after"], age))
    return sorted(found, key=lambda consumer: consumer.name)


def _consumer_path(name: str) -> str:
    return f"{CONSUMERS_FOLDER}/{name}"
