"""A small table."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.unit.indexing.jvm import SCHEMA, rows


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    table = HudiTable.create(
        str(tmp_path / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    ingest_arrow(table, rows([1, 2, 3]))
    return table
