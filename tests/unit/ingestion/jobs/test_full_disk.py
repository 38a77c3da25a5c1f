"""A write on a full disk raises an error that says so, and leaves no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.ingestion_contract.lake import KIB, Lake

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string(), "v": pa.string()})

_WRITES = """
import resource, sys
import pyarrow as pa
from airflow_provider.exceptions import StorageFullError
from airflow_provider.ingestion import ingest_arrow

location, operation, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # a larger file fails with EFBIG
ids = list(range(20_000))
rows = pa.table({"id": ids, "p": ["a"] * len(ids), "v": [str(n * n) for n in ids]})
try:
    ingest_arrow(location, rows, operation)
except StorageFullError as error:
    print(error)
"""


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "insert_overwrite"])
def test_a_write_without_room_is_rolled_back(lake: Lake, operation: str) -> None:
    table = lake.create(SCHEMA, partition_by=["p"])
    there = [{"id": 1, "p": "a", "v": "there"}]
    table.ingest("upsert", there)
    told = subprocess.run(
        [sys.executable, "-c", _WRITES, table.location, operation, str(64 * KIB)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"no room for {table.location}/p=a/" in told.stdout, told.stderr
    assert "File too large" in told.stdout
    assert "free space there" in told.stdout
    table.check_now(there)
    table.ingest(operation, there)
    table.check(there if operation != "bulk_insert" else there * 2)


def test_files_written_side_by_side_are_rolled_back_together(lake: Lake) -> None:
    table = lake.create(SCHEMA, partition_by=["p"])
    there = [{"id": 1, "p": "a", "v": "there"}]
    table.ingest("upsert", there)
    ids = list(range(60_000))
    rows = [{"id": n, "p": "abcd"[n % 4], "v": str(n**9) if n % 4 == 2 else ""} for n in ids]
    code = _WRITES.replace("ids = list(range(20_000))", "import json").replace(
        'rows = pa.table({"id": ids, "p": ["a"] * len(ids), "v": [str(n * n) for n in ids]})',
        "rows = pa.Table.from_pylist(json.load(sys.stdin))",
    )
    told = subprocess.run(
        [sys.executable, "-c", code, table.location, "upsert", str(300 * KIB)],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"no room for {table.location}/p=c/" in told.stdout, told.stderr
    table.check_now(there)
    assert not list(Path(table.location).rglob("p=[bcd]/*.parquet"))
    table.ingest("upsert", rows)
    table.check(there + rows)


def test_a_small_file_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from airflow_provider.table.storage.storage import Storage\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "for put in (Storage.put, Storage.put_if_absent):\n"
        "    try:\n"
        "        put(Storage(sys.argv[1]), 'file', b'x' * 100)\n"
        "    except OSError as error:\n"
        "        print(error.strerror, error.filename)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [f"File too large {tmp_path}/file"] * 2, told.stderr
    assert list(tmp_path.iterdir()) == []
