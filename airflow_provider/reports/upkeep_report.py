"""The table services of a table: plans, progress, options, and who holds files or instants back."""

from __future__ import annotations

from typing import Any

from airflow_provider.indexing import index_status
from airflow_provider.reports.history import TableHistory
from airflow_provider.reports.timeline_report import who
from airflow_provider.services.archival import plan_archival
from airflow_provider.services.cleaning import Retention, pending_cleans, plan_clean
from airflow_provider.services.clustering import clustering_progress, pending_clusterings
from airflow_provider.services.compaction import pending_compactions
from airflow_provider.services.savepoint import savepoints
from airflow_provider.services.table_options import describe_options
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions, Topic
from airflow_provider.table.timeline import Action

_MOST_ENTRIES = 2_000  # the page has read them for the timeline


def report_upkeep(history: TableHistory) -> dict[str, Any]:
    """The indexes of a table, its pending plans, and its options.

    :param history: the table's history.
    :return: JSON-able: ``indexes``, ``plans`` (``service``, ``instant``, ``progress``), ``savepoints``,
        ``options`` (options that the table itself sets come first), ``columns``, ``record_key``,
        ``partition_by``, ``ordering``, ``location``, ``type``, ``version``.
    """
    table, config = history.table, history.table.config
    indexes = index_status(table)
    # Oldest first, so that a run counts more than the plan, and of several runs the last one.
    entries = reversed(history.entries(_MOST_ENTRIES)) if indexes else ()
    built_by = {each.instant: each.owner for each in entries if each.action is Action.INDEXING}
    progress = clustering_progress(table)
    plans = [
        {"service": "clustering", "instant": each, "progress": progress.get(each, "waits")}
        for each in pending_clusterings(table)
    ]
    for service, pending in (("cleaning", pending_cleans), ("compaction", pending_compactions)):
        plans += [{"service": service, "instant": each, "progress": "waits"} for each in pending(table)]
    options = sorted(describe_options(table), key=lambda option: option["from"] != "table")
    return {
        "location": table.location,
        "type": config.table_type,
        "version": config.version,
        "record_key": list(config.record_key_fields),
        "partition_by": list(config.partition_fields),
        "ordering": list(config.ordering_fields),
        "columns": {column.name: str(column.type) for column in table.schema},
        "indexes": [
            each.to_dict() | {"who": who(each.owner or built_by.get(each.instant))} for each in indexes
        ],
        "plans": plans,
        "savepoints": [each.to_dict() for each in savepoints(table)],
        "options": options,
    }


def report_held_back(history: TableHistory) -> dict[str, Any]:
    """The work that a clean and an archival would do now, and who holds the rest back.

    This lists all of the table's files, so ask only when a person wants to know.

    :param history: the table's history; the table's own options decide what is kept.
    :return: JSON-able: ``clean`` (``files``, ``bytes``, and ``held``: ``by``, ``files``, ``bytes``) and
        ``archival`` (``instants`` and ``held_by``).
    """
    table = history.table
    retention = Retention(
        **EffectiveOptions(HudiOptions(), table.hudi_options).arguments(
            Topic.CLEANING, policy=None, retained=None
        )
    )
    clean, archival = plan_clean(table, retention), plan_archival(table)
    return {
        "clean": {
            "files": len(clean.files),
            "bytes": sum(each.size for each in clean.files),
            "held": [{"by": each.by, "files": each.files, "bytes": each.size} for each in clean.kept],
        },
        "archival": {"instants": len(archival.instants), "held_by": archival.held_by},
    }
