"""The engine archive that a Spark cluster imports."""

import subprocess
import sys
import sysconfig
import tomllib
import zipfile

from airflow_provider.operators._base.engine_archive import write_engine_archive
from tests.packaging.uv import ROOT

WRITE_A_TABLE = """
import sys

sys.path[:] = [ARCHIVE, *(p for p in sys.path if "site-packages" not in p), SITE_PACKAGES]

import airflow_provider
from airflow_provider.spark import ingestion, job
assert airflow_provider.__file__.startswith(ARCHIVE)
assert not {"airflow", "kazoo", "pyspark", "sqlalchemy"} & set(sys.modules)

import pyarrow as pa
from airflow_provider.concurrency import begin_write
from airflow_provider.table.hudi_table import HudiTable

table = HudiTable.create(LOCATION, name="t", schema=pa.schema([("id", pa.int64())]), record_key=["id"])
with begin_write(table, operation="UPSERT") as writer:
    writer.plan([], [])
    writer.commit([])
print(len(table.timeline().completed()))

# What is there for some configurations only can be imported too.
import importlib
import zipfile

for name in zipfile.ZipFile(ARCHIVE).namelist():
    if name.endswith(".py") and "/migrations/" not in name:
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
assert not {"airflow", "pyspark"} & set(sys.modules)
"""


def test_the_engine_writes_tables_from_the_archive_alone(tmp_path):
    archive = write_engine_archive(tmp_path)
    settings = {
        "ARCHIVE": str(archive),
        # The archive is alone on the path: the .pth file of the environment would lead back to the checkout.
        "SITE_PACKAGES": sysconfig.get_path("purelib"),
        "LOCATION": str(tmp_path / "table"),
    }
    program = "".join(f"{name} = {value!r}\n" for name, value in settings.items()) + WRITE_A_TABLE
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"


def test_what_only_airflow_needs_stays_at_home(tmp_path):
    names = zipfile.ZipFile(write_engine_archive(tmp_path)).namelist()
    assert "airflow_provider/exceptions.py" in names
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert len(face := wheel["only-include"]) > 5
    inside = {"/".join(name.split("/")[:2]) for name in names}
    assert not inside & {*face, "airflow_provider/cli"}
    assert all(name.startswith("airflow_provider/") and "__pycache__" not in name for name in names)
