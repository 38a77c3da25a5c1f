"""What it costs to import the engine and to start its command line, side by side with pyarrow.

Each import runs in a new interpreter, in turns, so that both meet the same load. An interpreter that imports
nothing is subtracted. Modules are compiled beforehand, as an installation does it.

Usage: ``python -m benchmarks.imports [--times 20]``. On a busy machine only the ratios mean something.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa

from airflow_provider.table import HudiTable
from benchmarks.report import Report, Side

NOTHING_AT_ALL, NOTHING = "nothing", "pass"

_COMMAND = "from airflow_provider.cli import app; app({arguments}, standalone_mode=False)"
IMPORTS = {
    "pyarrow": "import pyarrow",
    "the libraries that the engine imports": (
        "import fastavro, isal, numpy, pyarrow.compute, pyarrow.parquet, tenacity, xxhash"
    ),
    "airflow_provider.table": "import airflow_provider.table",
    "HudiTable and its readers": "from airflow_provider.table import HudiTable, increment, snapshot",
    "airflow_provider.locks": "import airflow_provider.locks",
    "airflow_provider.ingestion": "import airflow_provider.ingestion",
    "table-services --help": _COMMAND.format(arguments=["--help"]),
    "table-services timeline of an empty table": _COMMAND.format(arguments=["timeline", "{table}"]),
}


def measured(statement: str) -> tuple[float, float]:
    """Milliseconds that a new interpreter takes for a statement: on the clock, and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * elapsed, 1000 * used


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20, help="interpreters for each import")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        table = HudiTable.create(
            f"{folder}/t", name="t", schema=pa.schema([("id", pa.int64())]), record_key=["id"]
        )
        statements = {
            name: statement.replace("{table}", table.location)
            for name, statement in {NOTHING_AT_ALL: NOTHING, **IMPORTS}.items()
        }
        compare(statements, times)


def compare(statements: dict[str, str], times: int) -> None:
    """Measure each statement so many times in turns, and print a table."""
    for statement in statements.values():  # compiles
        measured(statement)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in statements}
    for _ in range(times):
        for name, statement in statements.items():
            found[name].append(measured(statement))

    nothing = [statistics.median(each[which] for each in found[NOTHING_AT_ALL]) for which in (0, 1)]

    def side(name: str, which: int) -> Side:
        return Side(name, [each[which] - nothing[which] for each in found[name]])

    with Report("imports", f"processor time above an empty interpreter, {times} times") as report:
        for name in IMPORTS:
            ours, pyarrow = side(name, 1), side("pyarrow", 1)
            peers = () if name == pyarrow.name else (pyarrow,)
            report.add(name, ours, *peers, unit="ms", elapsed=f"{side(name, 0).median:.0f} ms")


if __name__ == "__main__":
    main()
