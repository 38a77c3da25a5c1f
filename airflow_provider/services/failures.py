"""When a table service stops itself: after it has failed on the same input again and again.

Nothing is kept for this. The commit log says it all: a service's plan that failed was rolled back, and
its input has changed when a commit has touched the plan's file groups since.
"""

from __future__ import annotations

from itertools import islice

from airflow_provider.concurrency import CommitLog, LogEntry
from airflow_provider.exceptions import ServiceStoppedError
from airflow_provider.table.file_groups import FileGroupId
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.instant import Action

_ENTRIES = 200  # of the log, that are looked at: what failed longer ago may be tried again


def failures_in_a_row(table: HudiTable, action: Action) -> list[LogEntry]:
    """The rollbacks of a service's plans whose input still stands as it was, since its last success.

    :param table: the table.
    :param action: of the service, for example :attr:`Action.CLUSTERING`.
    :return: newest first.
    """
    changed: set[FileGroupId] = set()
    completed: set[str] = set()
    rollbacks: dict[str, LogEntry] = {}
    failures: list[LogEntry] = []
    for entry in islice(CommitLog(table.storage).backwards(), _ENTRIES):
        if entry.plans and entry.action is action:
            if entry.instant in completed:
                break
            rollback = rollbacks.get(entry.instant)
            if rollback is not None and not entry.written & changed:
                failures.append(rollback)
        elif entry.rolls_back is not None:
            rollbacks[entry.rolls_back] = entry
        completed.add(entry.instant)
        changed |= entry.touched
    return failures


def check_not_stopped(table: HudiTable, action: Action, most: int | None) -> None:
    """Make sure that a service has not failed too often to be tried once more.

    :param table: the table.
    :param action: of the service.
    :param most: failures in a row after which it stops; None for a person who has found the reason,
        and tries again whatever happened.
    :raises ServiceStoppedError: when it has stopped; tells the last reason.
    """
    if most is None:
        return
    failures = failures_in_a_row(table, action)
    if len(failures) >= most:
        last = failures[0]
        raise ServiceStoppedError(
            f"table {table.location}: {action} has failed {len(failures)} times in a row, last instant "
            f"{last.rolls_back} ({last.reason or 'no reason known'}), and has stopped; it goes on when a "
            "commit has changed its file groups, or when a person schedules it with max_failures=None",
            failures=len(failures),
            instant=last.rolls_back,
        )
