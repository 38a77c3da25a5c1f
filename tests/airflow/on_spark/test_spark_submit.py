"""Jobs by spark-submit: the shipped engine, on a Python with only the libraries that docs/spark.md names."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.metastore import TxnState
from airflow_provider.operators._base.spark_job import SubmittedSparkJob
from airflow_provider.table.storage import Storage
from tests.airflow.flights import ingest, rows_of
from tests.packaging.uv import uv

# docs/spark.md tells users to install these on a cluster.
CLUSTER_LIBRARIES = ("fastavro", "fsspec", "isal", "numpy", "pandas", "pyarrow", "tenacity", "xxhash")


@pytest.fixture(scope="session")
def cluster_python(tmp_path_factory) -> Path:
    """A Python with the libraries that a cluster needs: no Airflow, not this package, no pyspark."""
    folder = tmp_path_factory.mktemp("cluster") / "venv"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    locked = folder.parent / "locked.txt"
    uv("export", "--quiet", "--locked", "--no-emit-workspace", "--no-hashes", "--output-file", locked)
    python = folder / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraints", locked, *CLUSTER_LIBRARIES)
    return python


def test_driver_and_workers_need_only_the_stated_libraries(
    metastore, table, source, spark_on_this_machine, cluster_python, capsys
):
    python = {"spark.pyspark.python": str(cluster_python), "spark.pyspark.driver.python": str(cluster_python)}
    operator = ingest(source, spark_conn_id=spark_on_this_machine, spark_conf=python)
    result = operator.execute({})
    assert result["rows_inserted"] == len(rows_of(table)) == 3
    assert metastore.get_txn(result["txn_id"]).state == TxnState.COMMITTED
    # While the job runs, the task's log has the address of Spark's interface.
    assert "Spark's user interface: http://" in "".join(capsys.readouterr())


def test_a_driver_on_the_cluster_gets_the_job_shipped(connect, tmp_path):
    connect("spark", conn_type="spark", host="yarn", extra=json.dumps({"deploy-mode": "cluster"}))
    options = {"executor_memory": "2g", "files": "/etc/hosts", "py_files": "/srv/more.zip", "name": "load"}
    job = SubmittedSparkJob(logging.getLogger(), conn_id="spark", conf={"spark.x": "1"}, options=options)
    hook = job._submit_hook(tmp_path / "0815.json", Storage(str(tmp_path)), {})
    command = hook._build_spark_submit_command("job.py")
    arguments = dict(zip(command[1:-2:2], command[2:-2:2], strict=True))
    assert arguments == {
        "--master": "yarn",
        "--deploy-mode": "cluster",
        "--conf": "spark.x=1",
        "--files": f"{tmp_path}/0815.json,/etc/hosts",
        "--py-files": f"{tmp_path}/airflow_provider.zip,/srv/more.zip",
        "--executor-memory": "2g",
        "--name": "load",
    }
    assert command[-2:] == ["job.py", "0815.json"]


def test_a_worker_without_spark_submit_says_so(metastore, table, source, connect, monkeypatch, tmp_path):
    connect("spark", conn_type="spark", host="local[1]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AirflowFailException, match="'spark-submit' is not on this worker's PATH") as raised:
        ingest(source, spark_conn_id="spark").execute({})
    assert isinstance(raised.value.__cause__, InvalidConnectionError)
    assert table.timeline().instants == ()
