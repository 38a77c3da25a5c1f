"""A package with lazy imports offers all its names, and a caller pays for the modules that it names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["operators", "metastore", "spark"])
def test_each_name_of_a_lazy_package_is_found_and_no_other(package: str) -> None:
    module = importlib.import_module(f"airflow_provider.{package}")
    assert len(module.__all__) > 5
    for name in module.__all__:
        assert getattr(module, name) is not None
    for name in ("Nothing", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"'airflow_provider.{package}' has no attribute '{name}'"):
            getattr(module, name)


def _modules_after(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_a_caller_pays_for_the_names_that_it_uses() -> None:
    of_model = _modules_after("from airflow_provider.metastore import ValidWriteIdList")
    assert "airflow_provider.metastore.model" in of_model
    assert not {"airflow_provider.metastore.api", "sqlalchemy"} & of_model
    assert {"airflow_provider.metastore.api", "sqlalchemy"} <= _modules_after(
        "from airflow_provider.metastore import Metastore"
    )


@pytest.mark.parametrize("package", ["table", "locks"])
def test_the_lowest_rooms_import_neither_airflow_nor_spark_nor_a_database(package: str) -> None:
    imported = _modules_after(f"import airflow_provider.{package}")
    assert {"pyarrow", f"airflow_provider.{package}"} <= imported
    assert not {"airflow", "pyspark", "sqlalchemy", "kazoo", "pandas"} & imported


def test_the_test_above_sees_what_is_imported() -> None:
    assert {"airflow", "sqlalchemy"} <= _modules_after("import airflow_provider.hooks")
