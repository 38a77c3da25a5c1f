"""Partitions of several file groups, with keys looked up in Spark."""

from __future__ import annotations

import pytest

from airflow_provider.spark.ingestion.tagging_plan import bundled
from airflow_provider.table.file_groups.view import BaseFile
from tests.ingestion_contract.lake import KIB
from tests.ingestion_contract.several_file_groups import *  # noqa: F403

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
