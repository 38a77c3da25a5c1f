"""Replication beside ``cp -r`` and ``rsync``; events a second, the lag behind a steady ingestion, an abort.

``cp`` and ``rsync`` copy the folder of the same table. The replicator bootstraps it: it copies the same data
files, compares each with the original, makes a table of them, and fills the target's catalog. One more work
does not compare, as ``cp`` and ``rsync`` do not. Each work ends when everything is on the disk.

``rsync`` is needed: ``apt-get install rsync``.

Usage: ``python -m benchmarks.replication [--megabytes 512] [--file-megabytes 16] [--rounds 3]``
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, Metastore, open_metastore
from airflow_provider.replication import CopySettings, ReplicationPolicy, ReplicationSettings, Replicator
from airflow_provider.table import HudiTable
from benchmarks.report import Report, Side, in_turns

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
COLUMNS = [Column("id", "bigint"), Column("value", "double")]
REPLICATE = [
    sys.executable,
    "-c",
    "from airflow_provider.cli import main; main()",
    "replicate",
    "--policy=dr",
]


def main() -> None:
    """Measure, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--megabytes", type=int, default=512, help="of the table")
    arguments.add_argument("--file-megabytes", type=int, default=16, help="of each of its files")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--transactions", type=int, default=2_000, help="without data")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of steady ingestion")
    given = arguments.parse_args()
    if shutil.which("rsync") is None:
        raise SystemExit("rsync is missing: apt-get install rsync")
    note = f"{given.megabytes} MB in files of {given.file_megabytes} MB, {given.rounds} rounds"
    with tempfile.TemporaryDirectory(prefix="replication-") as folder, Report("replication", note) as report:
        root = Path(folder)
        source = new_source(root, given.megabytes, given.file_megabytes)
        for work, is_checked in (("bootstrap", True), ("bootstrap, contents not compared", False)):
            works = {
                "ours": partial(bootstrap, source, root, is_checked),
                "cp -r": partial(copy, root, ["cp", "-r"]),
                "rsync -a": partial(copy, root, ["rsync", "-a"]),
            }
            sides = in_turns(works, rounds=given.rounds)
            report.add(f"{work}, {note}", *sides, unit="MB/s", more_is_faster=True)
        rate = events_a_second(source, root, given.transactions)
        report.add("events without data", Side("ours", [rate]), unit="/s")
        lags = lag(source, root, given.seconds)
        report.add("from a commit to its arrival, two commits a second", Side("ours", lags), unit="s")
        written, copied = aborted(source, root)
        report.add(
            f"copied of an aborted transaction of {written / 1e6:.0f} MB",
            Side("ours", [copied]),
            unit="bytes",
        )


def new_source(root: Path, megabytes: int, file_megabytes: int) -> Metastore:
    """A metastore with a table whose files cannot be compressed."""
    source: Metastore = open_metastore(f"sqlite:///{root}/source.db")
    source.create_database("lake", f"{root}/source")
    HudiTable.create(f"{root}/source/t", name="t", schema=SCHEMA, record_key=["id"])
    source.create_table("lake", "t", location=f"{root}/source/t", schema=COLUMNS)
    for number in range(megabytes // file_megabytes):
        write(source, number, file_megabytes, "bulk_insert")
    return source


def rows_of(number: int, megabytes: float) -> pa.Table:
    """Rows of which a base file has so many bytes: a key, a random value, and what Hudi adds."""
    count = int(megabytes * 1e6 / 24)
    first = number * 10_000_000
    random = np.random.default_rng(number)
    return pa.table([np.arange(first, first + count), random.random(count)], schema=SCHEMA)


def write(source: Metastore, number: int, megabytes: float, operation: str = "upsert") -> int:
    """Write rows in a transaction of their own.

    :return: the write id.
    """
    result = ingest_arrow("lake.t", rows_of(number, megabytes), operation, metastore=source)
    return int(result["write_id"])


def policy_of(root: Path, target: str) -> ReplicationPolicy:
    """Of the source's only database."""
    return ReplicationPolicy("dr", {"lake": "copy"}, {f"{root}/source": f"{root}/{target}"})


def bootstrap(source: Metastore, root: Path, is_checked: bool) -> tuple[float, None]:
    """MB a second of a bootstrap into a new target."""
    shutil.rmtree(root / "target", ignore_errors=True)
    (root / "target.db").unlink(missing_ok=True)
    target = open_metastore(f"sqlite:///{root}/target.db")
    settings = ReplicationSettings(CopySettings(checksum=is_checked))
    replicator = Replicator(policy_of(root, "target"), source, target, settings=settings)
    rate = size_of(root) / seconds_of(replicator.run)
    target.close()
    source.unregister_consumer("replication-dr")
    return rate, None


def copy(root: Path, command: list[str]) -> tuple[float, None]:
    """MB a second of a program that copies the table's folder."""
    shutil.rmtree(root / "copied", ignore_errors=True)
    (root / "copied").mkdir()
    took = seconds_of(lambda: subprocess.run([*command, root / "source" / "t", root / "copied"], check=True))
    shutil.rmtree(root / "copied")
    return size_of(root) / took, None


def size_of(root: Path) -> float:
    """MB of the table's files."""
    return sum(each.stat().st_size for each in (root / "source" / "t").rglob("*") if each.is_file()) / 1e6


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds until what a work has written is on the disk, which has nothing else to write."""
    os.sync()
    begun = time.perf_counter()
    work()
    os.sync()
    return time.perf_counter() - begun


def events_a_second(source: Metastore, root: Path, transactions: int) -> float:
    """The rate at which a target applies the events of transactions without a write."""
    target = open_metastore(f"sqlite:///{root}/events.db")
    replicator = Replicator(policy_of(root, "events"), source, target)
    replicator.run()
    for _ in range(transactions):
        source.commit_txn(source.open_txn("me", "here"))
    begun = time.perf_counter()
    done = replicator.run()
    rate = done.events / (time.perf_counter() - begun)
    target.close()
    source.unregister_consumer("replication-dr")
    return rate


def lag(source: Metastore, root: Path, seconds: float) -> list[float]:
    """Seconds from each commit at the source to its arrival, by a replicator in another process."""
    target = open_metastore(f"sqlite:///{root}/lag.db")
    where = [
        f"--source=sqlite:///{root}/source.db",
        f"--target=sqlite:///{root}/lag.db",
        "--database=lake=copy",
    ]
    command = [*REPLICATE, *where, f"--location={root}/source={root}/lag", "--poll=0.05"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    follower = subprocess.Popen(
        [*command, f"--follow={seconds * 10}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    waited, ends, number = [], time.monotonic() + seconds, 1_000
    try:
        while time.monotonic() < ends or len(waited) < 3:
            begun, number = time.monotonic(), number + 1
            write_id = write(source, number, 0.1)
            committed = time.monotonic()
            while not target.valid_write_id_list("copy", "t").is_valid(write_id):
                if follower.poll() is not None:
                    raise SystemExit("the replicator has ended")
                time.sleep(0.005)
            waited.append(time.monotonic() - committed)
            time.sleep(max(0.0, begun + 0.5 - time.monotonic()))
    finally:
        follower.kill()
        follower.wait()
        target.close()
        source.unregister_consumer("replication-dr")
    return waited[1:]  # the first one waits for the follower's imports


def aborted(source: Metastore, root: Path) -> tuple[int, int]:
    """Bytes that an aborted transaction has written, and that the replication has copied of it."""
    target = open_metastore(f"sqlite:///{root}/aborted.db")
    replicator = Replicator(policy_of(root, "aborted"), source, target)
    replicator.run()
    table = HudiTable.open(f"{root}/source/t")
    txn = source.open_txn("me", "here", commit_on_recovery=False)
    write_id = source.allocate_table_write_id(txn, "lake", "t")
    before = size_of(root)
    ingest_arrow(table, rows_of(2_000, 8), "bulk_insert", txn_id=txn, write_id=write_id, txn_goes_on=True)
    written = size_of(root) - before
    copied = replicator.run().bytes_copied
    source.abort_txn(txn)
    copied += replicator.run().bytes_copied
    target.close()
    return int(written * 1e6), copied


if __name__ == "__main__":
    main()
