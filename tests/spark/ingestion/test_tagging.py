"""Partitions of several file groups, with keys looked up in Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider.spark.ingestion.tagging_plan import bundled
from airflow_provider.table.file_groups.view import BaseFile
from tests.ingestion_contract.lake import KIB, LakeTable
from tests.ingestion_contract.several_file_groups import *  # noqa: F403
from tests.ingestion_contract.several_file_groups import SMALL, rows, values

pytestmark = pytest.mark.usefixtures("source")


def test_bundles_are_of_about_equal_size() -> None:
    def file(number: int, mib: int) -> BaseFile:
        return BaseFile("p", f"f{number}", "0-0-0", "20240101000000000", f"p/f{number}", mib * KIB * KIB)

    assert bundled([file(0, 1)]) == [[file(0, 1)]]
    assert len(bundled([file(n, 10) for n in range(10)])) == 1
    bundles = bundled([file(n, 120) for n in range(100)])
    assert len(bundles) == 16
    assert {len(bundle) for bundle in bundles} <= {6, 7}
    assert len({each.file_id for bundle in bundles for each in bundle}) == 100


def test_many_tasks_search_the_files_of_one_partition(
    several: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.spark.ingestion.tagging_plan._BUNDLE_BYTES", 1)
    monkeypatch.setattr("airflow_provider.spark.ingestion.scan.tagged_rows._MOST_COUNTS", 0)
    before = values(several)
    several.ingest(
        "upsert", pa.concat_tables([rows(range(100, 3100, 7), 1), rows(range(5, 15), 1, "b")]), **SMALL
    )
    after = {("a", number): 1 for number in range(100, 3100, 7)} | {
        ("b", number): 1 for number in range(5, 15)
    }
    assert values(several) == before | after
    several.check()
