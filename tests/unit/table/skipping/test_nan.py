"""Filters of a column with NaN: NaN differs from every value, and is neither above nor below one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.skipping import Filter

NAN = float("nan")
SCHEMA = pa.schema({"id": pa.int64(), "f": pa.float64()})
FILES: list[dict[int, float | None]] = [{1: 0.5, 2: 2.0}, {3: NAN}, {4: None}]
"""Values by id, of each file."""
FILTERS: list[tuple[Filter, set[int]]] = [
    (("f", ">", 1.0), {2}),
    (("f", ">=", 0.5), {1, 2}),
    (("f", "<", 1.0), {1}),
    (("f", "<=", 2.0), {1, 2}),
    (("f", "=", 2.0), {2}),
    (("f", "!=", 2.0), {1, 3}),
    (("f", "in", [2.0]), {2}),
    (("f", "not in", [2.0]), {1, 3}),
    (("f", ">", NAN), set()),
    (("f", ">=", NAN), set()),
    (("f", "<", NAN), set()),
    (("f", "<=", NAN), set()),
    (("f", "=", NAN), set()),
    (("f", "!=", NAN), {1, 2, 3}),
    (("f", "in", [NAN]), {3}),
    (("f", "not in", [NAN]), {1, 2}),
    (("f", "is null", None), {4}),
    (("f", "is not null", None), {1, 2, 3}),
]


def with_nan(location: str) -> HudiTable:
    """A table with a file for each of :data:`FILES`, and statistics of its columns."""
    table = HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"])
    for values in FILES:
        rows = pa.table({"id": list(values), "f": list(values.values())}, SCHEMA)
        ingest_arrow(table, rows, "bulk_insert")
    schedule_index(table, ["column_stats"])
    run_index(table)
    return HudiTable.open(location)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    made = with_nan(str(tmp_path_factory.mktemp("nan") / "t"))
    assert len(made.view().all_base_files()) == len(FILES)
    return made


@pytest.mark.parametrize(("where", "ids"), FILTERS, ids=[f"{one} {value}" for (_, one, value), _ in FILTERS])
def test_nan_differs_from_every_value(table: HudiTable, where: Filter, ids: set[int]) -> None:
    assert set(snapshot(table, where=[where]).to_table()["id"].to_pylist()) == ids
