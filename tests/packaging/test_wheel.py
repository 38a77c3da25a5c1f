"""The wheels, built and installed into an environment without other packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packaging.uv import ROOT, uv

ENGINE_ALONE = """
import importlib, pkgutil, sys
import airflow_provider

for module in pkgutil.walk_packages(airflow_provider.__path__, "airflow_provider."):
    if ".migrations" in module.name:
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] in {"pysasl", "s3fs", "aiobotocore", "psycopg"}, module  # extras

import pyarrow as pa
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import open_metastore
from airflow_provider.table import HudiTable, snapshot

rows = pa.table({"id": [1, 2]})
location = sys.argv[1] + "/t"
table = HudiTable.create(location, name="t", schema=rows.schema, record_key=["id"])
ingest_arrow(table, rows)
assert snapshot(table).count_rows() == 2
open_metastore("sqlite:///" + sys.argv[1] + "/metastore.db").create_database("lake")
print(sorted({"airflow", "pyspark", "pandas"} & set(sys.modules)))
"""


class Wheels(NamedTuple):
    face: Path
    engine: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Wheels:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--all-packages", "--quiet", "--out-dir", folder)
    return Wheels(*sorted(folder.glob("*.whl")))


@pytest.fixture(scope="module")
def locked(tmp_path_factory) -> Path:
    """The versions of the lock file, without the packages that only developers need."""
    path = tmp_path_factory.mktemp("locked") / "locked.txt"
    uv(
        *("export", "--quiet", "--locked", "--no-default-groups", "--all-extras"),
        *("--no-emit-workspace", "--no-hashes", "--output-file", path),
    )
    return path


def environment(folder: Path, locked: Path, *installed: str | Path) -> Path:
    """Make a new environment with this package; return its Python."""
    uv("venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraints", locked, *installed)
    return python


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    # The process runs in another folder, so that it cannot import the checkout.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    done = subprocess.run(
        command, cwd=cwd, env=clean | variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_each_file_of_the_package_is_in_one_of_the_two_wheels(wheels):
    face, engine = map(files_of, wheels)
    assert not face & engine
    sources = {path for path in (ROOT / "airflow_provider").rglob("*.*") if path.suffix != ".pyc"}
    assert face | engine == {str(path.relative_to(ROOT)) for path in sources}


def test_a_wheel_from_the_engines_sdist_is_the_same(wheels, tmp_path):
    uv("build", "--package", "table-services-engine", "--quiet", "--out-dir", tmp_path)  # by way of an sdist
    [built] = tmp_path.glob("*.whl")
    assert files_of(built) == files_of(wheels.engine)


def test_both_have_one_version():
    face, engine = (
        tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
        for path in (".", "packaging/engine")
    )
    assert f"{engine['name']}=={face['version']}" in face["dependencies"]
    assert engine["version"] == face["version"]


def test_the_engine_alone_needs_neither_airflow_nor_spark(wheels, locked, tmp_path):
    python = environment(tmp_path / "venv", locked, wheels.engine)
    assert run(python, "-c", ENGINE_ALONE, str(tmp_path), cwd=tmp_path).strip() == "[]"
    command = tmp_path / "venv" / "bin" / "table-services"
    told = json.loads(run(command, "show", str(tmp_path / "t"), "--json", cwd=tmp_path))
    assert told["location"] == str(tmp_path / "t")
    installed = uv("pip", "list", "--quiet", "--python", python)
    assert not {"apache-airflow", "pyspark", "pyspark-client", "pandas"} & set(installed.split())


def test_an_empty_environment_finds_the_provider_in_it(wheels, locked, tmp_path):
    python = environment(tmp_path / "venv", locked, *wheels)
    home = {"AIRFLOW_HOME": str(tmp_path / "home"), "PATH": f"{python.parent}:{os.environ['PATH']}"}

    def airflow(*arguments: str) -> list[dict]:
        return json.loads(run("airflow", *arguments, "--output", "json", cwd=tmp_path, **home))

    [ours] = [
        provider
        for provider in airflow("providers", "list")
        if provider["package_name"] == "airflow-provider-table-services"
    ]
    assert ours["version"] == "0.1.0"
    hooks = {hook["connection_type"]: hook for hook in airflow("providers", "hooks")}
    assert hooks["table_lock"]["hook_name"] == "Table Lock"
    assert hooks["table_metastore"]["hook_name"] == "Table Metastore"
    imported = run(
        *(python, "-c"),
        "from airflow_provider.operators import CreateTableOperator, IngestOperator;"
        "from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor;"
        "from airflow.sdk import task; task.ingest;"
        "import airflow_provider; print(airflow_provider.__file__)",
        cwd=tmp_path,
        **home,
    )
    assert imported.strip().startswith(str(tmp_path / "venv"))
    # Spark's client came with Airflow's Spark provider; a Spark on this machine is an extra.
    told = run(
        *(python, "-c"),
        "from airflow_provider.spark import local_session\n"
        "try: local_session('t')\n"
        "except Exception as error: print(type(error).__name__, error)",
        cwd=tmp_path,
        **home,
    )
    assert told.startswith("SparkVersionError only Spark's client is installed here"), told
    assert "pip install pyspark==" in told
