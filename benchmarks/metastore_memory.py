"""What a replica's process of the metastore's service takes of memory, for many tables with many partitions.

The tables lie in a PostgreSQL that is started here. A client reads tables with all their partitions, chosen
at random, by their write ids, until they would fill the replica's memory several times. A row has the memory
of the server's process at the end; on the screen there is also the one after its start.

Usage: ``python -m benchmarks.metastore_memory [--tables 10000] [--partitions 1000] [--cache-megabytes 256]
[--reads 2000]``. Ten million partitions take 4 GB in the temporary folder, and minutes to make.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from pathlib import Path

import psutil
import sqlalchemy

from airflow_provider.metastore import Column, open_metastore
from airflow_provider.metastore.model.reader import Reader
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from benchmarks.metastore_servers import Running, our_metastore, postgresql
from benchmarks.report import Report, Side

COLUMNS = 20
_PARTITIONS = """
INSERT INTO metastore_partitions
    (table_id, partition_values, location, parameters, has_plain_values, created_at)
SELECT id, '["2026-' || day || '"]', location || '/day=2026-' || day,
    '{"numFiles": "12", "totalSize": "123456789", "transient_lastDdlTime": "1767225600"}', TRUE, 0
FROM metastore_tables, generate_series(1, :partitions) AS day
"""


def fill(url: sqlalchemy.URL, tables: int, partitions: int) -> None:
    """Tables ``lake.t0``, ``lake.t1`` ..., each with a partition key ``day``."""
    metastore = open_metastore(url.render_as_string(hide_password=False))
    metastore.create_database("lake")
    schema = [Column(f"c{number}", "bigint") for number in range(COLUMNS)]
    keys = [Column("day", "string")]
    for number in range(tables):
        name = f"t{number}"
        metastore.create_table("lake", name, location=f"/lake/{name}", schema=schema, partition_keys=keys)
    metastore.close()
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(_PARTITIONS), {"partitions": partitions})
        connection.exec_driver_sql("ANALYZE metastore_partitions")
    engine.dispose()


def resident(server: Running) -> int:
    """The resident memory of a server's largest process, in bytes."""
    root = psutil.Process(server.pid)
    return max(one.memory_info().rss for one in (root, *root.children(recursive=True)))


def read(port: int, url: sqlalchemy.URL, names: list[str], partitions: int) -> None:
    """Read tables with their partitions, by their write ids."""
    metastore = open_metastore(url.render_as_string(hide_password=False))
    with contextlib.closing(ThriftMetastore(f"thrift://127.0.0.1:{port}", timeout_seconds=600)) as server:
        for name in names:
            seen = metastore.read_snapshot([("lake", name)]).tables[f"lake.{name}"]
            reader = Reader(valid_write_ids=seen.write_ids, table_id=seen.table_id)
            found = len(server.get_partitions("lake", name, **reader))
            if found != partitions:
                raise RuntimeError(f"{found} partitions, not {partitions}")
    metastore.close()


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tables", type=int, default=10_000)
    arguments.add_argument("--partitions", type=int, default=1_000)
    arguments.add_argument("--cache-megabytes", type=int, nargs="+", default=[256])
    arguments.add_argument("--reads", type=int, default=2_000, help="tables that are read")
    chosen = arguments.parse_args()
    note = f"{chosen.tables} tables of {chosen.partitions} partitions, {chosen.reads} tables read"
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(Report("metastore_memory", note))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-")))
        folder.chmod(0o755)  # for root the PostgreSQL runs as a user of its own
        database = stack.enter_context(postgresql(folder))
        began = time.monotonic()
        fill(database.url, chosen.tables, chosen.partitions)
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        chance = random.Random(7)
        for megabytes in chosen.cache_megabytes:
            options = ("--cache-megabytes", str(megabytes))
            with our_metastore(folder, database, 1, options) as server:
                at_start = resident(server)
                names = [f"t{chance.randrange(chosen.tables)}" for _ in range(chosen.reads)]
                read(server.port, database.url, names, chosen.partitions)
                report.add(
                    f"memory of a replica, --cache-megabytes {megabytes}, {note}",
                    Side("ours", [resident(server) / 1e6]),
                    unit="MB",
                    **{"at the start": f"{at_start / 1e6:.0f} MB"},
                )


if __name__ == "__main__":
    main()
