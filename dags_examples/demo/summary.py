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

from airflow_provider.concurrency import PRIORITIES, CommitLog
from airflow_provider.metastore import open_metastore
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.instant import parse_time

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
    timeline = table.timeline()
    stats = {instant.requested_time: timeline.commit_metadata(instant) for instant in timeline.commits()}
    entries = list(CommitLog(table.storage).after(0))

    columns = {}
    for dag, priority in (("flights_steady", 400), ("flights_backfill", 300)):
        mine = [entry for entry in entries if entry.rolls_back is None and entry.priority == priority]
        written = [stat for entry in mine for stat in stats[entry.instant].write_stats]
        tasks = [(name, task) for run in runs if run["dag"] == dag for name, task in run["tasks"].items()]
        seconds = [(parse_time(e.completion_time) - parse_time(e.instant)).total_seconds() for e in mine]
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

    first, last = parse_time(entries[0].instant), parse_time(entries[-1].completion_time)
    switches = sum(a.priority != b.priority for a, b in itertools.pairwise(entries))
    metastore = open_metastore(f"sqlite:///{home / 'airflow' / 'table_services' / 'metastore.db'}")
    events = Counter(event.event_type for event in metastore.next_events(0, limit=100_000))
    console.print(
        f"{len(entries)} commit log entries in {(last - first).total_seconds():.0f} s, {switches} times "
        f"switching between the two writers; "
        f"{sum(entry.rolls_back is not None for entry in entries)} rolled back"
    )
    console.print(
        "notification log: " + ", ".join(f"{count} {kind}" for kind, count in sorted(events.items()))
    )
