"""Sources on an object store, which has no folders, are found and read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import EmptySourceError, MissingSourceError, SparkNeededError
from airflow_provider.ingestion import ingest_files
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import s3_options
from tests.processes.servers import s3_endpoint

ROWS = pa.table({"id": [1, 2, 3]})


def test_a_folder_a_pattern_and_what_is_not_there(tmp_path: Path) -> None:
    with s3_endpoint(tmp_path / "server.log") as port:
        options = s3_options(port)
        storage = Storage("s3://lake", options)
        storage._filesystem.mkdir("lake")
        pq.write_table(ROWS, tmp_path / "a.parquet")
        for name in ("in/a.parquet", "in/_SUCCESS", "deep/day=1/a.parquet", "none/_SUCCESS"):
            storage.put(name, (tmp_path / "a.parquet").read_bytes() if name.endswith("t") else b"")
        storage.put("in/", b"")  # the mark of a folder, as S3's console leaves it

        def load(source: str, location: str) -> int:
            table = HudiTable.create(
                location, name="t", schema=ROWS.schema, record_key=["id"], storage_options=options
            )
            ingest_files(location, source, storage_options=options)
            return snapshot(table).count_rows()

        assert load("s3://lake/in", "s3://lake/tables/a") == 3
        assert load("s3://lake/in/*.parquet", "s3://lake/tables/b") == 3
        # The table may be elsewhere than its source.
        assert load("s3a://lake/deep/day=*/a.parquet", str(tmp_path / "c")) == 3
        for source, error in {
            "s3://lake/missing/*.parquet": MissingSourceError,
            "s3://lake/missing": MissingSourceError,
            "s3://lake/none": EmptySourceError,
            "s3://lake/deep": SparkNeededError,
        }.items():
            with pytest.raises(error):
                ingest_files("s3://lake/tables/a", source, storage_options=options)
