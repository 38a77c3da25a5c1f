"""The pages whose blocks open a Spark session; ``test_pages`` runs this."""

from __future__ import annotations

import pytest

from airflow_provider.spark import local_session
from tests.airflow.docs.blocks import PAGES
from tests.airflow.docs.reader import Reader, needs_spark, variables_of


@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)])
def test_a_page(page, tmp_path, metastore, run_dag, monkeypatch):
    for name, value in variables_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    spark = local_session("docs", "local[1]")
    Reader(page, tmp_path, metastore, run_dag, spark).follow()
