"""Settings by Hudi's own names: a table stores them, and its operators use them, without Spark."""

from __future__ import annotations

import json
from datetime import datetime

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import (
    InvalidConnectionError,
    InvalidInputError,
    LockTimeoutError,
    TableExistsError,
    UnknownOperationError,
)
from airflow_provider.hooks.lock_provider import LockProviderHook
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import InProcessLockProvider
from airflow_provider.operators import (
    ArchiveTimelineOperator,
    BackfillOperator,
    CleanOperator,
    ClusteringOperator,
    CreateTableOperator,
    IngestOperator,
    ScheduleClusteringOperator,
)
from airflow_provider.services.clustering.clustering import pending_plan
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS

OPTIONS = {
    "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.cleaner.fileversions.retained": "{{ params.versions }}",
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clustering.plan.strategy.sort.columns": ["fare", "id"],
    "hoodie.layout.optimize.strategy": "ZORDER",
    "hoodie.write.lock.provider": "InProcessLockProvider",
    "hoodie.write.lock.wait_time_ms": 50,
}
RENDERED = OPTIONS | {"hoodie.cleaner.fileversions.retained": 1}


def creates(location, **arguments) -> CreateTableOperator:
    return CreateTableOperator(
        task_id="create",
        table=str(location),
        schema=COLUMNS,
        record_key=["id"],
        partition_by=["day"],
        **arguments,
    )


@pytest.fixture
def lake(tmp_path) -> HudiTable:
    """A table with options, and four versions of one row in it."""
    creates(tmp_path / "flights", hudi_options=RENDERED).execute({})
    table = HudiTable.open(str(tmp_path / "flights"))
    for fare in range(4):
        row = dict(zip(COLUMNS, (1, "mon", float(fare)), strict=True))
        ingest_arrow(table, pa.Table.from_pylist([row]))
    return table


def cause(operator) -> BaseException | None:
    with pytest.raises(AirflowFailException) as failure:
        operator.execute({})
    return failure.value.__cause__


def test_a_dag_gives_a_table_its_options_and_what_works_on_it_takes_them(run_dag, tmp_path):
    with DAG("configured", schedule=None, start_date=datetime(2024, 1, 1), params={"versions": 1}) as dag:
        creates(tmp_path / "new", hudi_options=OPTIONS)
    run_dag(dag)
    assert HudiTable.open(str(tmp_path / "new")).hudi_options == HudiOptions.parse(RENDERED)


def test_cleaning_and_archival_take_the_tables_options_unless_the_task_has_its_own(run_dag, lake):
    with DAG("services", schedule=None, start_date=datetime(2024, 1, 1), params={"versions": 2}) as dag:
        shared = {"table": lake.location, "dry_run": True}
        own = {"hoodie.clean.fileversions.retained": "{{ params.versions }}", "hoodie.keep.min.commits": 1}
        CleanOperator(task_id="clean", **shared)
        CleanOperator(task_id="clean_own", **shared, hudi_options=own)
        CleanOperator(task_id="clean_by_argument", **shared, retained=3)
        ArchiveTimelineOperator(task_id="archive", **shared)
        ArchiveTimelineOperator(task_id="archive_own", **shared, hudi_options=own)
    run = run_dag(dag)
    deleted = [xcom(run, task)["files_deleted"] for task in ("clean", "clean_own", "clean_by_argument")]
    assert deleted == [3, 2, 1]
    assert [len(xcom(run, task)["archived"]) for task in ("archive", "archive_own")] == [2, 3]


def test_a_clustering_is_planned_by_the_tables_options(lake):
    row = dict(zip(COLUMNS, (2, "mon", 1.0), strict=True))
    ingest_arrow(lake, pa.Table.from_pylist([row]), "bulk_insert")
    own = {"hoodie.clustering.plan.strategy.small.file.limit": 10**6}
    scheduling = ScheduleClusteringOperator(task_id="plan", table=lake.location, hudi_options=own)
    settings = pending_plan(lake, scheduling.execute({})["instant"]).settings
    assert (settings.sort_by, settings.layout, settings.small_file_limit) == (
        ("fare", "id"),
        "z-order",
        10**6,
    )
    assert "hudi_options" in ClusteringOperator.template_fields
    assert len(set(ClusteringOperator.template_fields)) == len(ClusteringOperator.template_fields)


@pytest.mark.parametrize(
    ("operator", "own", "expected"),
    [
        (IngestOperator, {}, {"on_conflict": "raise", "heartbeat_interval": 10.0, "target_file_size": 2000}),
        (BackfillOperator, {}, {"on_conflict": "rebase", "max_rebases": 10}),
        (
            IngestOperator,
            {
                "hoodie.write.num.retries.on.conflict.failures": "3",
                "hoodie.client.heartbeat.interval_in_ms": "2500",
                "hoodie.client.heartbeat.tolerable.misses": "4",
            },
            {"on_conflict": "rebase", "max_rebases": 3, "heartbeat_interval": 2.5, "tolerable_misses": 4},
        ),
    ],
)
def test_a_load_takes_its_own_options_over_the_tables(operator, own, expected):
    table = {"hoodie.parquet.max.file.size": 2000, "hoodie.parquet.small.file.limit": 1000}
    options = EffectiveOptions(HudiOptions.parse(own), HudiOptions.parse(table))
    job = operator(task_id="load", table="/lake/t", source="/landing").job({}, options, location="/lake/t")
    settings = vars(job.settings.policy) | vars(job.settings.heartbeat) | vars(job.sizes)
    assert {name: settings[name] for name in expected} == expected


def test_the_lock_is_the_one_that_the_table_names(lake):
    row = pa.Table.from_pylist([dict(zip(COLUMNS, (2, "tue", 1.0), strict=True))])
    with InProcessLockProvider(lake.location):
        with pytest.raises(LockTimeoutError, match=r"not acquired in 0\.05 s"):
            CleanOperator(task_id="clean", table=lake.location).execute({})
        with pytest.raises(LockTimeoutError, match=r"not acquired in 0\.05 s"):
            ingest_arrow(lake.location, row)
    assert CleanOperator(task_id="clean", table=lake.location).execute({})["files_deleted"] == 3


def test_a_connection_and_an_option_must_name_the_same_lock(connect, lake):
    connect("locks", conn_type="table_lock", extra=json.dumps({"provider": "filesystem"}))
    error = cause(CleanOperator(task_id="clean", table=lake.location, lock_conn_id="locks"))
    assert isinstance(error, InvalidConnectionError)
    assert "connection 'locks' and Hudi's options say different things of the lock's provider" in str(error)

    password = {"conn_type": "table_lock", "password": "geheim-7"}
    connect("locks", **password, extra='{"provider": "metastore", "url": "thrift://hms1:9083"}')
    hook = LockProviderHook("locks")
    with pytest.raises(InvalidConnectionError, match="of the lock's url;") as raised:
        hook.lock_config({"provider": "metastore", "url": "thrift://hms2:9083"})
    assert "hms2" not in str(raised.value)
    assert hook.lock_config({"provider": "metastore", "table": "flights"}) == {
        "provider": "metastore",
        "url": "thrift://hms1:9083",
        "password": "geheim-7",
        "table": "flights",
    }


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (
            {"hudi_options": {"hoodie.clean.comits.retained": 1}},
            UnknownOperationError,
            "hoodie.clean.commits.ret",
        ),
        ({"hudi_options": {"hoodie.clean.commits.retained": "few"}}, InvalidInputError, "not 'few'"),
        (
            {"hudi_options": {"hoodie.clean.commits.retained": 2}, "retained": 3},
            InvalidInputError,
            "argument retained is 3.0, and hudi_options say 2",
        ),
        (
            {"hudi_options": {"hoodie.write.concurrency.mode": "SINGLE_WRITER"}},
            InvalidInputError,
            "has no lock",
        ),
    ],
)
def test_mistakes_fail_the_task_before_anything_is_deleted(lake, arguments, error, told):
    files = sorted(file.path for file in lake.storage.list("", recursive=True))
    found = cause(CleanOperator(task_id="clean", table=lake.location, **arguments))
    assert type(found) is error
    assert told in str(found)
    assert sorted(file.path for file in lake.storage.list("", recursive=True)) == files


def test_a_table_that_is_there_is_taken_when_it_has_the_options(lake):
    some = {"hoodie.keep.min.commits": "2"}
    assert creates(lake.location, if_not_exists=True, hudi_options=some).execute({})["created"] is False
    other = creates(lake.location, if_not_exists=True, hudi_options={"hoodie.keep.min.commits": 1})
    error = cause(other)
    assert isinstance(error, TableExistsError)
    assert "its options: hoodie.keep.min.commits=2; asked for: hoodie.keep.min.commits=1" in str(error)
