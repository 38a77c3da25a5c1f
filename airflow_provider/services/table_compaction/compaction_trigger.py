"""The moment at which a compaction of a merge-on-read table is due.

Sources: ``ScheduleCompactionActionExecutor.needCompact`` and ``CompactionUtils`` of Apache Hudi 1.2.
"""

from __future__ import annotations

from airflow_provider.services.compaction_plan import delta_commits_since
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action, Timeline, age, timeline_zone


def is_due(table: HudiTable, timeline: Timeline, settings: TableCompactionSettings) -> bool:
    """Whether a compaction is due.

    The storage's clock tells the time that has passed, as it tells the age of a heartbeat: the clocks of
    schedulers and workers differ. It is read only if the time decides.

    :param table: a merge-on-read table.
    :param timeline: its active timeline.
    :param settings: when a compaction is due.
    """
    or_planned = settings.trigger == "NUM_COMMITS_AFTER_LAST_REQUEST"
    is_enough = delta_commits_since(timeline, or_planned=or_planned) >= settings.delta_commits

    def is_late() -> bool:
        return _seconds_since(table, timeline) >= settings.delta_seconds

    match settings.trigger:
        case "TIME_ELAPSED":
            return is_late()
        case "NUM_AND_TIME":
            return is_enough and is_late()
        case "NUM_OR_TIME":
            return is_enough or is_late()
    return is_enough


def _seconds_since(table: HudiTable, timeline: Timeline) -> float:
    """Seconds since the last compaction was planned; without one, since the first deltacommit was begun."""
    commits = timeline.commits()
    compactions = [each.requested_time for each in commits if each.action is Action.COMMIT]
    deltas = [each.requested_time for each in commits if each.action is Action.DELTA_COMMIT]
    if not compactions and not deltas:
        return 0.0
    since = max(compactions) if compactions else min(deltas)
    return age(since, table.storage.clock(), timeline_zone(table.storage))
