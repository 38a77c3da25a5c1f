"""A table service stops itself after it has failed on the same input again and again.

The commit log tells the failures of clusterings: a failed plan was rolled back, and its input has changed if
a commit has touched its file groups since. The other services put no entry when they fail. So each of their
failures is kept as a file until the service succeeds.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice

from airflow_provider import metrics
from airflow_provider.concurrency.log import CommitLog, Plan, Rollback
from airflow_provider.exceptions import (
    CommitError,
    InvalidInputError,
    NoSuchInstantError,
    ServiceStoppedError,
    TableServiceError,
)
from airflow_provider.locks.owner import describe_owner
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, now

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Failures in a row after which a service stops itself on a table."""

FAILURES_FOLDER = ".hoodie/.service_failures"

_ENTRIES = 200  # entries of the log that are searched; an older failure does not count
_CLEARED = "cleared"
_HOW_TO_CLEAR = (
    "or when a person has mended the reason and tries again: on the command line, by `table-services "
    "failures TABLE --clear {service}`, or with max_failures=None"
)


class Service(StrEnum):
    """A table service; the value is its name in commands and messages."""

    CLUSTERING = "clustering"
    CLEANING = "cleaning"
    COMPACTION = "compaction"
    """A compaction of the metadata table."""
    TABLE_COMPACTION = "table-compaction"
    """A compaction of a merge-on-read table."""
    ARCHIVAL = "archival"
    INDEXING = "indexing"


@dataclass(frozen=True)
class Failure:
    """A failure of a service on a table.

    :param at: instant time of the failure.
    :param reason: the error.
    :param input: the service's input; a stopped service resumes by itself when its input has changed.
    :param owner: host and process.
    """

    at: str
    reason: str
    input: str
    owner: str


def failures(table: HudiTable, service: Service) -> list[Failure]:
    """The failures of a service in a row, since its last success.

    :param table: the table.
    :param service: the service.
    :return: oldest first; of clusterings only those whose input is unchanged.
    """
    if service is Service.CLUSTERING:
        entries = reversed(failures_in_a_row(table))
        return [Failure(e.completion_time, e.reason, e.rolls_back, e.owner) for e in entries]
    folder = _folder(service)
    found = []
    for name in sorted(table.storage.names(folder)):
        with suppress(FileNotFoundError):  # just cleared
            found.append(Failure(**json.loads(table.storage.read(f"{folder}/{name}"))))
    return found


def clear_failures(table: HudiTable, service: Service) -> None:
    """Forget the failures of a service, so that it resumes if it has stopped itself.

    :param table: the table.
    :param service: the service.
    """
    folder = _folder(service)
    if service is Service.CLUSTERING:
        newest = CommitLog(table.storage).newest()
        table.storage.put(f"{folder}/{_CLEARED}", (newest.completion_time if newest else "").encode())
        return
    for name in table.storage.names(folder):
        table.storage.delete(f"{folder}/{name}")


@contextmanager
def stopping_itself(
    table: HudiTable, service: Service, input_of: Callable[[], str], most: int | None
) -> Iterator[None]:
    """A context for a run of a service: it counts failures, and does not begin a run after too many of them.

    A failure that another call may get over, such as a lost conflict or a lock, does not count. Nor does an
    error of the caller.

    :param table: the table.
    :param service: the service.
    :param input_of: returns the run's input; called only after a failure.
    :param most: failures in a row after which the service stops until its input changes; None never stops it.
    :raises ServiceStoppedError: when the service has stopped; the error names the last reason.
    :raises UnsupportedTableError: when this package does not write such a table.
    """
    table.check_writable()
    earlier = check_failures(table, service, input_of, most)
    try:
        yield
    except Exception as error:
        if _counts(error):
            _keep(table.storage, service, error, _text(input_of))
        raise
    for name in earlier:
        table.storage.delete(f"{_folder(service)}/{name}")


def check_failures(
    table: HudiTable, service: Service, input_of: Callable[[], str], most: int | None
) -> list[str]:
    """Make sure that a service has not failed too often on its input; of clustering see
    :func:`check_not_stopped`.

    :param table: the table.
    :param service: the service.
    :param input_of: see :func:`stopping_itself`.
    :param most: see :func:`stopping_itself`.
    :return: the files of the failures since the last success.
    :raises ServiceStoppedError: see :func:`stopping_itself`.
    """
    earlier = list(table.storage.names(_folder(service)))
    if most is not None and len(earlier) >= most:
        told = failures(table, service)
        if len(told) >= most and told[-1].input == _text(input_of):
            metrics.count("services_stopped", table=table.location, service=service)
            raise ServiceStoppedError(
                f"table {table.location}: {service} has failed {len(told)} times in a row, last at "
                f"{told[-1].at} ({told[-1].reason}), and has stopped; it resumes when its input, "
                f"{told[-1].input}, has changed, {_HOW_TO_CLEAR.format(service=service)}",
                failures=len(told),
                service=str(service),
            )
    return earlier


def log_head(table: HudiTable) -> str:
    """The input of a service that plans on the whole table: it changes with every commit."""
    newest = CommitLog(table.storage).newest()
    return f"the table as of {newest.completion_time}" if newest else "the table without commits"


def failures_in_a_row(table: HudiTable) -> list[Rollback]:
    """The rollbacks of clusterings whose input is unchanged, since the last success.

    :param table: the table.
    :return: newest first.
    """
    try:
        cleared = table.storage.read(f"{_folder(Service.CLUSTERING)}/{_CLEARED}").decode()
    except FileNotFoundError:
        cleared = ""
    changed: set[FileGroupId] = set()
    completed: set[str] = set()
    rollbacks: dict[str, Rollback] = {}
    found: list[Rollback] = []
    for entry in islice(CommitLog(table.storage).backwards(), _ENTRIES):
        if entry.completion_time <= cleared:
            break
        if isinstance(entry, Plan) and entry.action is Action.CLUSTERING:
            if entry.instant in completed:
                break
            rollback = rollbacks.get(entry.instant)
            if rollback is not None and not entry.file_groups & changed:
                found.append(rollback)
        elif isinstance(entry, Rollback):
            rollbacks[entry.rolls_back] = entry
        completed.add(entry.instant)
        changed |= entry.touched
    return found


def check_not_stopped(table: HudiTable, most: int | None) -> None:
    """Make sure that clustering has not failed too often to be planned again.

    :param table: the table.
    :param most: failures in a row after which clustering stops; None never stops it, for a person who has
        found the reason.
    :raises ServiceStoppedError: when clustering has stopped; the error names the last reason.
    """
    if most is None:
        return
    found = failures_in_a_row(table)
    if len(found) >= most:
        last = found[0]
        metrics.count("services_stopped", table=table.location, service=Service.CLUSTERING)
        raise ServiceStoppedError(
            f"table {table.location}: clustering has failed {len(found)} times in a row, last instant "
            f"{last.rolls_back} ({last.reason or 'no reason known'}), and has stopped; it resumes when a "
            f"commit has changed its file groups, {_HOW_TO_CLEAR.format(service=Service.CLUSTERING)}",
            failures=len(found),
            service=str(Service.CLUSTERING),
            instant=last.rolls_back,
        )


def _counts(error: Exception) -> bool:
    """Whether a failure is the service's own, and will recur."""
    if isinstance(error, InvalidInputError | NoSuchInstantError | ServiceStoppedError):
        return False
    if type(error) is CommitError:  # not a subclass such as a conflict: the service's own files are wrong
        return True
    return not (isinstance(error, TableServiceError) and error.retryable)


def _keep(storage: Storage, service: Service, error: Exception, given: str) -> None:
    failure = Failure(now(), f"{type(error).__name__}: {error}", given, describe_owner())
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.json"  # names sort by time, also within a millisecond
    try:
        storage.put(f"{_folder(service)}/{name}", json.dumps(asdict(failure)).encode())
    except OSError as not_kept:  # the storage may be what failed
        log.warning("table %s: the failure of %s could not be recorded: %s", storage.root, service, not_kept)


def _text(input_of: Callable[[], str]) -> str:
    try:
        return input_of()
    except (TableServiceError, OSError):  # this may be the reason of the failure
        return "what cannot be read"


def _folder(service: Service) -> str:
    return f"{FAILURES_FOLDER}/{service}"
