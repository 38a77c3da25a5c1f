"""Reading the table back, and telling a person what happened."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hudi import HudiTableBuilder
from rich.console import Console
from rich.table import Table

from airflow_provider.concurrency import PRIORITIES
from airflow_provider.indexing.status import index_status
from airflow_provider.metastore import open_metastore
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.metadata_table.reader import MetadataTable, metadata_storage
from airflow_provider.table.timeline.archived_timeline import archived
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Instant, parse_time
from airflow_provider.table.timeline.metadata import CommitMetadata

_KEY = [("time_hour", "ascending"), ("carrier", "ascending"), ("flight", "ascending")]


def check_rows(console: Console, location: Path, source: pa.Table) -> None:
    """Read the table with hudi-rs and with our own reader; both must equal the source.

    :param console: where to say so.
    :param location: the table.
    :param source: what was loaded.
    """
    wanted = source.sort_by(_KEY).combine_chunks()
    ours = snapshot(HudiTable.open(str(location))).to_table()
    batches = HudiTableBuilder.from_base_uri(str(location)).build().read()
    independent = pa.Table.from_batches(batches)
    for name, found in (("airflow_provider", ours), ("hudi-rs", independent)):
        rows = found.select(wanted.column_names).cast(wanted.schema).sort_by(_KEY).combine_chunks()
        if not rows.equals(wanted):
            raise SystemExit(
                f"{name} reads {found.num_rows:,} rows that differ from the {wanted.num_rows:,} landed"
            )
        console.print(f"  [green]✓[/] read by [bold]{name}[/]: {found.num_rows:,} rows, equal to the source")


def print_summary(console: Console, location: Path, report: Path, home: Path) -> None:
    """Commits by DAG, who retried or waited, and what the metastore recorded.

    :param console: where to print.
    :param location: the table.
    :param report: the runs, a line of JSON each.
    :param home: the demo's folder.
    """
    runs = [json.loads(line) for line in report.read_text().splitlines()]
    names = {priority: name for name, priority in PRIORITIES.items()}
    table = HudiTable.open(str(location))
    commits = _commits(table)
    columns = {}
    for dag, priority in (("flights_steady", 400), ("flights_backfill", 300)):
        mine = [commit for commit in commits if commit[1].extra_metadata["priority"] == str(priority)]
        written = [stat for _, metadata in mine for stat in metadata.write_stats]
        tasks = [(name, task) for run in runs if run["dag"] == dag for name, task in run["tasks"].items()]
        seconds = [_seconds(instant.requested_time, instant.completion_time or "") for instant, _ in mine]
        sensors = [task["seconds"] or 0 for name, task in tasks if name != "ingest"]
        columns[dag] = {
            "priority": names[priority],
            "commits": str(len(mine)),
            "rows": f"{sum(stat.num_inserts for stat in written):,}",
            "base files written": str(len(written)),
            "seconds a commit": f"median {statistics.median(seconds):.1f}, longest {max(seconds):.1f}",
            "retries": str(sum((task["tries"] or 1) - 1 for _, task in tasks)),
            "sensors": f"{len(sensors)}, waited {sum(sensors):.0f} s in all" if sensors else "none",
        }
    lines = Table("", *columns)
    for name in columns["flights_steady"]:
        lines.add_row(name, *(column[name] for column in columns.values()))
    console.print(lines)

    loads = [metadata.extra_metadata["priority"] for _, metadata in commits[:-1]]
    switches = sum(before != after for before, after in itertools.pairwise(loads))
    took = _seconds(commits[0][0].requested_time, commits[-2][0].completion_time or "")
    console.print(f"{len(loads)} commits in {took:.0f} s, {switches} times switching between the two writers")
    clustering, clustered = commits[-1]
    replaced = sum(map(len, clustered.replaced.values()))
    took = _seconds(clustering.requested_time, clustering.completion_time or "")
    console.print(
        f"clustering {clustering.requested_time}: the rows of {replaced} file groups, ordered into "
        f"{len(clustered.write_stats)} in {took:.1f} s"
    )
    metadata_table = MetadataTable(metadata_storage(table.storage))
    complete = [each.index for each in index_status(table) if each.state == "complete"]
    records = {index: sum(1 for _ in metadata_table.records(index)) for index in complete}
    console.print(
        "indexes: " + ", ".join(f"{index} of {count:,} records" for index, count in records.items())
    )
    active = len(table.timeline().commits())
    console.print(f"timeline: {active} commits, and {len(commits) - active} in the archive")
    metastore = open_metastore(f"sqlite:///{home / 'airflow' / 'table_services' / 'metastore.db'}")
    events = Counter(event.event_type for event in metastore.next_events(0, limit=100_000))
    console.print(
        "notification log: " + ", ".join(f"{count} {kind}" for kind, count in sorted(events.items()))
    )


def _commits(table: HudiTable) -> list[tuple[Instant, CommitMetadata]]:
    """All commits and what they did, in the order of their completion, those of the archive too."""
    timeline = table.timeline()
    found = [(each.instant, each.commit_metadata) for each in archived(table.storage, actions=WRITE_ACTIONS)]
    found += [(instant, timeline.commit_metadata(instant)) for instant in timeline.commits()]
    return sorted(found, key=lambda commit: commit[0].completion_time or "")


def _seconds(begin: str, end: str) -> float:
    return (parse_time(end) - parse_time(begin)).total_seconds()
