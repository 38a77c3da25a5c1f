"""The instants that a rollback or a restore undoes, by the timeline.

Both are final once their plan exists: from then on files are deleted, and a writer that finds the plan
finishes it (Hudi's ``BaseRollbackActionExecutor``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import Action, Instant, State
from airflow_provider.table.timeline.metadata import decode

UNDOING = frozenset({Action.ROLLBACK, Action.RESTORE})


def undone_by(timeline: Timeline, undoing: Instant) -> frozenset[str]:
    """The instants that a rollback or a restore undoes.

    :param timeline: an active timeline that shows the rollback or restore.
    :param undoing: the rollback or the restore, in any state.
    :return: their requested times; empty if the rollback or restore was archived meanwhile.
    """
    if (plan := timeline.plan(undoing)) is not None:
        return undone_instants(plan)
    if undoing.state is not State.COMPLETED:
        return frozenset()
    try:
        content = timeline.read(undoing)
    except NoSuchInstantError:
        return frozenset()
    return undone_instants(decode(content)) if content else frozenset()


def find_undoing(timeline: Timeline, instant: str) -> Instant | None:
    """The rollback or restore on a timeline that undoes an instant.

    :param timeline: the active timeline.
    :param instant: requested time of the instant; a rollback or restore that undoes it was requested later.
    """
    for each in timeline.instants:
        later = each.action in UNDOING and each.requested_time > instant
        if later and instant in undone_by(timeline, each):
            return each
    return None


def doomed_files(timeline: Timeline, rollback: Instant) -> list[str]:
    """The data files that a rollback deletes, by its plan.

    :param timeline: an active timeline that shows the rollback.
    :param rollback: the rollback, in any state.
    :return: paths relative to the table; empty when the plan does not name them all, as for a restore and for
        blocks of log files, or is gone.
    """
    requests = (timeline.plan(rollback) or {}).get("RollbackRequests") or []
    if any(each["logBlocksToBeDeleted"] for each in requests):
        return []
    return [
        f"{each['partitionPath']}/{url.rpartition('/')[2]}".lstrip("/")
        for each in requests
        for url in each["filesToBeDeleted"]
    ]


def undone_instants(record: Mapping[str, Any]) -> frozenset[str]:
    """The instants that the plan, or the metadata, of a rollback or a restore names.

    :param record: Hudi's own record.
    """
    if planned := record.get("instantToRollback"):
        return frozenset({str(planned["commitTime"])})
    named = (*(record.get("instantsToRollback") or ()), *(record.get("commitsRollback") or ()))
    return frozenset(str(each if isinstance(each, str) else each["commitTime"]) for each in named)
