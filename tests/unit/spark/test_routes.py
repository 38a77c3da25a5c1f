"""The targets of the rows that a task of Spark reads."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.ingestion.file_groups import ARRIVAL, TARGET
from airflow_provider.spark.ingestion.scan.routes import SharedRoutes, Tags
from airflow_provider.table.properties import TableConfig

CONFIG = TableConfig(name="t", record_key_fields=("id",), partition_fields=("part",), hive_style=False)
FIRST = 3 << 33
"""The number of the first row of the task."""

_FOUND = st.dictionaries(st.integers(-1, 6), st.sets(st.integers(0, 29)), max_size=5)


@given(
    shares=st.dictionaries(st.sampled_from("ab"), st.integers(0, 6).map(lambda target: [(target, 1)])),
    found=_FOUND,
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_a_row_goes_to_each_file_that_has_its_key_and_another_where_new_rows_go(
    shares: dict[str, list[tuple[int, int]]], found: dict[int, set[int]], sizes: list[int]
) -> None:
    tables, begin = [], 0
    for size in sizes:
        ids = np.arange(begin, begin + size)
        parts = ["ab"[number % 2] for number in ids.tolist()]
        tables.append(pa.table({"id": ids, "part": pa.array(parts, pa.string()), ARRIVAL: ids + FIRST}))
        begin += size
    tags = Tags.of((target, np.array(sorted(rows), np.int64) + FIRST) for target, rows in found.items())
    sent = Counter(
        (row["id"], row[TARGET])
        for table in SharedRoutes(CONFIG, shares).numbered(tables, tags)
        for row in table.to_pylist()
    )
    expected: set[tuple[int, int]] = set()
    for number in range(begin):
        targets = {target for target, rows in found.items() if number in rows}
        if not targets:
            targets = {target for target, _ in shares.get("ab"[number % 2], [])}
        expected |= {(number, target) for target in targets if target >= 0}
    assert sent == Counter(expected)
