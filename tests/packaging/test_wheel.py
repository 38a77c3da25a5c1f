"""The wheel, built and installed where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.uv import ROOT, uv


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--quiet", "--out-dir", folder)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"airflow_provider"}
    sources = {path for path in (ROOT / "airflow_provider").rglob("*.*") if path.suffix != ".pyc"}
    assert {str(path.relative_to(ROOT)) for path in sources} <= set(names)


def test_an_empty_environment_finds_the_provider_in_it(wheel, tmp_path):
    environment = tmp_path / "venv"
    uv("venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    locked = tmp_path / "locked.txt"
    uv(
        "export",
        "--quiet",
        "--locked",
        "--no-default-groups",
        "--no-emit-project",
        "--no-hashes",
        "--output-file",
        locked,
    )
    uv("pip", "install", "--quiet", "--python", python, "--constraints", locked, wheel)

    home = {"AIRFLOW_HOME": str(tmp_path / "home"), "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}

    def run(*command: str) -> str:
        # In another folder, so that the checkout cannot be what is imported.
        done = subprocess.run(
            command, cwd=tmp_path, env={**clean, **home}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    [ours] = [
        provider
        for provider in json.loads(run("airflow", "providers", "list", "--output", "json"))
        if provider["package_name"] == "airflow-provider-table-services"
    ]
    assert ours["version"] == "0.1.0"
    hooks = {
        hook["connection_type"]: hook
        for hook in json.loads(run("airflow", "providers", "hooks", "--output", "json"))
    }
    assert hooks["table_lock"]["hook_name"] == "Table Lock"
    assert hooks["table_metastore"]["hook_name"] == "Table Metastore"
    imported = run(
        str(python),
        "-c",
        "from airflow_provider.operators import CreateTableOperator, IngestOperator;"
        "from airflow_provider.sensors import NotificationLogCatchupSensor, PriorCommitsFenceSensor;"
        "import airflow_provider; print(airflow_provider.__file__)",
    )
    assert imported.strip().startswith(str(environment))
