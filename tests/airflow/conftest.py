"""A real Airflow for the tests: home, database and DAG bundle, made before Airflow is imported."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import uuid
from contextlib import closing
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="table-services-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
(HOME / "dags").mkdir()

os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
    }
)

import pytest  # noqa: E402 - Airflow reads its environment when it is imported, also by pytest plugins


@pytest.fixture(scope="session")
def new_airflow_database() -> Path:
    """An SQLite file as ``airflow db migrate`` leaves it, to be copied."""
    from airflow.utils.db import initdb

    initdb()
    copy = HOME / "new.db"
    with closing(sqlite3.connect(HOME / "airflow.db")) as database:
        database.execute("VACUUM INTO ?", [str(copy)])
    return copy


@pytest.fixture(scope="session")
def airflow_database(new_airflow_database) -> None:
    """Airflow's own database, empty."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    DagBundlesManager().sync_bundles_to_db()


@pytest.fixture
def run_dag(airflow_database):
    """Run a DAG of the test, and return its run with the tasks' results."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    def run(dag, **arguments):
        bag = DagBag(dag_folder="/dev/null", bundle_name="dags-folder", collect_dags=False)
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return dag.test(**arguments)

    return run


@pytest.fixture
def connect(monkeypatch):
    """Define an Airflow connection for one test."""

    def define(conn_id: str, **fields) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
        return conn_id

    return define


@pytest.fixture(scope="session")
def new_metastore_database() -> Path:
    """An SQLite file as a metastore has it in the beginning, to be copied."""
    from airflow_provider.metastore import open_metastore

    open_metastore(f"sqlite:///{HOME}/new_metastore.db").close()
    return HOME / "new_metastore.db"


@pytest.fixture
def metastore(connect, tmp_path, new_metastore_database):
    """A new embedded metastore behind the default connection."""
    from airflow_provider.metastore import open_metastore

    shutil.copy(new_metastore_database, tmp_path / "metastore.db")
    url = f"sqlite:///{tmp_path}/metastore.db"
    connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
    opened = open_metastore(url)
    yield opened
    opened.close()


@pytest.fixture
def table(metastore, tmp_path):
    """An empty table of flights, registered."""
    from airflow_provider.operators import CreateTableOperator
    from airflow_provider.table.hudi_table import HudiTable
    from tests.airflow.flights import COLUMNS

    location = str(tmp_path / "lake" / "flights")
    CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location=location,
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
    ).execute({})
    return HudiTable.open(location)


@pytest.fixture
def source(tmp_path) -> Path:
    """Three rows in two partitions."""
    from tests.airflow.flights import write_rows

    folder = tmp_path / "landing"
    folder.mkdir()
    rows = [(1, "mon", 10.0), (2, "mon", 20.0), (3, "tue", 30.0)]
    write_rows(folder / "a.parquet", rows)
    return folder


@pytest.fixture
def spark_on_this_machine(connect, monkeypatch) -> str:
    """A connection for spark-submit, with the Spark that pip installs."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return connect("spark", conn_type="spark", host="local[1]", extra=json.dumps({"deploy-mode": "client"}))


@pytest.fixture(scope="session")
def spark_connect_port(tmp_path_factory):
    """One Spark for all tests that do not test its start: with it a job takes a second or two."""
    from tests.airflow.shared_spark import shared_spark

    folder = tmp_path_factory.getbasetemp()
    # The folders of all workers have the same parent.
    with shared_spark(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as port:
        yield port


@pytest.fixture(scope="session")
def spark_session_id() -> str:
    """A session of that server, which jobs use one after the other: its Python workers stay warm."""
    return str(uuid.uuid4())


@pytest.fixture
def spark_connect(connect, spark_connect_port, spark_session_id) -> str:
    """A connection to a session of a Spark Connect server."""
    server = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": spark_connect_port}
    return connect("connect", **server, extra=json.dumps({"session_id": spark_session_id}))


@pytest.fixture
def nowhere(connect) -> str:
    """A connection to a server that does not exist: a task that starts a job fails."""
    return connect("nowhere", conn_type="spark_connect", host="sc://127.0.0.1", port=1)


@pytest.fixture
def spark_connect_alone(connect, spark_connect_port) -> str:
    """A connection to a Spark Connect server, where each job has a session of its own."""
    return connect("connect", conn_type="spark_connect", host="sc://127.0.0.1", port=spark_connect_port)


def xcom(run, task_id: str):
    """The result of a task of a run."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        query = XComModel.get_many(
            run_id=run.run_id, task_ids=task_id, dag_ids=run.dag_id, key="return_value"
        )
        return XComModel.deserialize_value(session.scalars(query).one())
