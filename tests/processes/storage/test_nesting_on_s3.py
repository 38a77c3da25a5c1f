"""Tables inside another table's folder, on an object store, which has no folders."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import s3_options
from tests.processes.servers import s3_endpoint

SCHEMA = pa.schema([("id", pa.int64())])


def test_a_table_inside_another_one_and_around_it(tmp_path: Path) -> None:
    with s3_endpoint(tmp_path / "server.log") as port:
        options = s3_options(port)
        Storage("s3://lake/t", options)._filesystem.mkdir("lake")

        def create(location: str) -> None:
            HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"], storage_options=options)

        create("s3://lake/a/t")
        create("s3://lake/a/t2")
        with pytest.raises(
            InvalidInputError, match=r"s3://lake/a/t/p=1/u is inside .* the table s3://lake/a/t,"
        ):
            create("s3://lake/a/t/p=1/u")
        with pytest.raises(InvalidInputError, match=r"s3://lake/a holds the table s3://lake/a/t "):
            create("s3://lake/a")
