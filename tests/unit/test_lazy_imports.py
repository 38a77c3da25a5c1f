"""A package with lazy imports offers all its names, and imports only the modules that a caller uses."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["operators", "metastore", "reports", "spark", "table"])
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


HEAVY = {
    "airflow",
    "alembic",
    "asyncio",
    "email",
    "fsspec",
    "jsonschema",
    "kazoo",
    "lark",
    "pandas",
    "pyspark",
    "requests",
    "rich",
    "sqlalchemy",
    "typer",
}
"""Modules that are not needed to open and read a table on a local disk; each costs 10 ms or more."""


@pytest.mark.parametrize(
    "statement",
    ["from airflow_provider.table import HudiTable, increment, snapshot", "import airflow_provider.locks"],
)
def test_the_lowest_rooms_import_nothing_heavy(statement: str) -> None:
    imported = _modules_after(statement)
    assert "pyarrow" in imported
    assert not HEAVY & imported


def test_the_command_line_starts_without_the_engine() -> None:
    imported = _modules_after("from airflow_provider.cli import main")
    assert "typer" in imported
    assert not (HEAVY | {"pyarrow", "numpy", "airflow_provider.concurrency"}) & (imported - {"rich", "typer"})


def test_the_tests_above_see_what_is_imported() -> None:
    assert {"airflow", "asyncio", "sqlalchemy"} <= _modules_after("import airflow_provider.hooks")
