"""Run benchmarks one after the other, and write what they report into the table of ``docs/performance.md``.

Usage: ``python -m benchmarks [NAME ...]``. Without names it runs all of them. With names, the other rows
of the table stay as they are.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import RESULTS, Row

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
HEADINGS = ("work", "ours", "peer", "times as fast", "MB, ours / peer", "benchmark")
ALL: Mapping[str, Sequence[str]] = {
    "single_process": (),
    "commits": ("--only", "append", "--writers", "1", "8", "--durability", "commit", "none"),
    "merge_on_read": (),
    "listing": (),
    "growth": ("--partitions", "1000", "10000", "--runs", "3"),
    "memory": ("--rows", "250000", "1000000"),
    "ingestion": (),
    "services": (),
    "indexing": (),
    "imports": (),
    "replication": (),
    "beside_hudi": ("--runs", "2"),
    "metastore": (),
    "metastore_memory": (),
    "page": (),
}
"""The benchmarks in the order of the table, with arguments by which its rows take half an hour, not a day."""
PEERS = ("pyarrow", "deltalake", "pylance", "duckdb", "hudi", "pyspark")


def main() -> None:
    """Run, and write the page."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; all, when none is named"
    )
    names = arguments.parse_args().names or tuple(ALL)
    if unknown := set(names).difference(ALL):
        arguments.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(ALL)}")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        results = Path(folder, "results")
        results.touch()
        failed = [name for name in names if not _succeeds(name, results)]
        rows = [Row(**json.loads(line)) for line in results.read_text().splitlines()]
    PAGE.write_text(with_rows(PAGE.read_text(), rows, _about(names)))
    if failed:
        raise SystemExit(f"these failed: {', '.join(failed)}; what they had measured before is in the table")


def _succeeds(name: str, results: Path) -> bool:
    print(" ".join(("python -m", f"benchmarks.{name}", *ALL[name])), flush=True)
    environment = {**os.environ, RESULTS: str(results)}
    command = [sys.executable, "-m", f"benchmarks.{name}", *ALL[name]]
    return subprocess.run(command, env=environment).returncode == 0


def with_rows(page: str, rows: list[Row], about: str) -> str:
    """The page with new rows: they take the place of those of the same benchmarks.

    :param page: text of the page.
    :param rows: what was reported.
    :param about: when, where and by what it was measured.
    """
    order = list(ALL)
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    new = {row.benchmark for row in rows}
    lines = [line for line in old.splitlines() if line.startswith("| ")][2:]
    kept = [line for line in lines if line.rstrip(" |").rpartition("| ")[2] not in new]
    lines = [f"| {' | '.join((r.work, r.ours, r.peer, r.ratio, r.memory, r.benchmark))} |" for r in rows]
    lines = sorted(kept + lines, key=lambda line: order.index(line.rstrip(" |").rpartition("| ")[2]))
    head = [f"| {' | '.join(HEADINGS)} |", f"| {' | '.join('---' for _ in HEADINGS)} |"]
    return "\n".join((before + BEGIN, about, "", *head, *lines, END)) + after


def _about(names: Sequence[str]) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}; {', '.join(names)} measured last; {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {versions}; load average {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
