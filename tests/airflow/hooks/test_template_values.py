"""Arguments that a template may have rendered to text, and invalid arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import InvalidConnectionError, InvalidInputError, NoSuchObjectError
from airflow_provider.hooks import MetastoreHook, TableHook
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import (
    ArchiveTimelineOperator,
    BackfillOperator,
    BeginTransactionOperator,
    BuildIndexOperator,
    CleanOperator,
    ClusteringOperator,
    CompactionOperator,
    CreateTableOperator,
    DropIndexOperator,
    RollbackFailedWritesOperator,
    RunClusteringOperator,
    RunCompactionOperator,
    RunIndexOperator,
    ScheduleIndexOperator,
)
from airflow_provider.operators._base import byte_size
from airflow_provider.sensors import IndexReadySensor
from tests.airflow.flights import COLUMNS, ingest


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (5, 5),
        ("5", 5),
        ("100 MB", 10**8),
        ("1.5 GB", 1_500_000_000),
        ("64MiB", 2**26),
        ("1g", 10**9),
        ("2 kib", 2048),
        ("None", None),
    ],
)
def test_a_size_is_a_number_or_has_a_unit(given, size):
    assert byte_size(given, "target_file_size") == size


@pytest.mark.parametrize("given", ["", "MB", "-1", True, "5 apples"])
def test_another_size_is_refused_by_name(given):
    with pytest.raises(InvalidInputError, match="target_file_size must be"):
        byte_size(given, "target_file_size")


@pytest.mark.parametrize("operator", [RunClusteringOperator, RunCompactionOperator, RunIndexOperator])
def test_the_text_of_none_names_no_plan(operator):
    with pytest.raises(InvalidInputError, match="'None', which names no plan"):
        operator(task_id="run", table="lake.flights", instant="None")
    operator(task_id="run", table="lake.flights", instant="{{ None }}")


@pytest.mark.parametrize("given", ["None", "20260101000000000", 20260101000000000])
def test_who_makes_a_plan_takes_none(given):
    with pytest.raises(InvalidInputError, match=f"takes no instant, not {given!r}; leave it out"):
        BuildIndexOperator(task_id="build", table="lake.flights", instant=given)


@pytest.mark.parametrize("operator", [RunClusteringOperator, RunIndexOperator, ClusteringOperator])
@pytest.mark.parametrize("given", ["20260101000000000", 20260101000000000, "first"])
def test_a_plan_that_is_not_there(metastore, table, source, operator, given):
    ingest_arrow(table, pq.read_table(source))
    before = sorted(Path(table.location).rglob("*"))
    with pytest.raises(AirflowFailException, match=f"no (clustering|indexing) plan {given}"):
        operator(task_id="run", table="lake.flights", instant=given).execute({})
    assert sorted(Path(table.location).rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"source": []}, r"source must name a path, URL or pattern, not \[\]"),
        ({"window_columns": 3}, "window_columns must be a text, or several, not 3"),
        ({"patience": "x"}, "patience must be 0 seconds or more"),
        ({"attempts": "x"}, "attempts must be a whole number"),
    ],
)
def test_a_backfill_that_cannot_work_starts_no_job(metastore, table, arguments, said):
    given = {"table": "lake.flights", "source": "/srv/landing", **arguments}
    with pytest.raises(AirflowFailException, match=said):
        BackfillOperator(task_id="history", **given).execute({})
    assert not (Path(table.location) / ".hoodie" / ".temp").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"table": None}, "table must be database.table"),
        ({"schema": None}, "schema of table lake.more is None"),
        ({"schema": 3}, "schema must be .* not 3"),
        ({"record_key": []}, "record_key names no column"),
        ({"record_key": 3}, "record_key must be a text, or several, not 3"),
        ({"partition_by": [3]}, r"partition_by must be a text, or several, not \[3\]"),
        ({"location": 3}, "location must be an absolute path or a URL, not 3"),
    ],
)
def test_a_table_of_none(metastore, tmp_path, arguments, said):
    given = {"table": "lake.more", "schema": COLUMNS, "record_key": ["id"], "location": f"{tmp_path}/more"}
    with pytest.raises(AirflowFailException, match=said) as raised:
        CreateTableOperator(task_id="create", **given | arguments).execute({})
    assert isinstance(raised.value.__cause__, InvalidInputError)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"source_format": None}, "source_format must name a format"),
        ({"source_options": "header"}, "source_options must be a mapping"),
        ({"extra_metadata": {"a": 1}}, "extra_metadata must map texts to texts"),
        ({"target_file_size": "much"}, "target_file_size must be"),
        ({"engine": "jvm"}, "engine must be one of auto, spark, arrow"),
        ({"engine": "auto", "arrow_max_bytes": "-1"}, "arrow_max_bytes must be"),
        ({"spark_connect_timeout": "soon"}, "spark_connect_timeout must be"),
        ({"spark_conn_id": "web"}, "connection 'web' is of type 'http', which runs no Spark job"),
    ],
)
def test_a_load_that_cannot_work_begins_nothing(metastore, table, source, connect, arguments, said):
    connect("web", conn_type="http", host="http://127.0.0.1")
    head = metastore.current_event_id()
    with pytest.raises(AirflowFailException, match=said):
        ingest(source, **arguments).execute({})
    assert (metastore.current_event_id(), table.timeline().instants) == (head, ())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"spark_conn_id": "missing"}, "connection 'missing' does not exist"),
        ({"spark_conn_id": "web"}, "connection 'web' is of type 'http'"),
        ({"engine": "jvm"}, "engine must be one of"),
        ({"arrow_max_bytes": "big"}, "arrow_max_bytes must be"),
        ({"spark_conf": ["x"]}, "spark_conf must be a mapping"),
        ({"spark_conf": {"spark.x": None}}, "spark_conf must map texts to values, not 'spark.x' to None"),
        ({"spark_submit_options": "x"}, "spark_submit_options must be a mapping"),
    ],
)
@pytest.mark.parametrize(
    "operator", [BuildIndexOperator, RunIndexOperator, ClusteringOperator, RunClusteringOperator]
)
def test_what_runs_no_job_is_refused_before_anything_is_planned(
    metastore, table, source, connect, operator, arguments, said
):
    connect("web", conn_type="http", host="http://127.0.0.1")
    ingest_arrow(table, pq.read_table(source))
    before = table.timeline().instants
    some = {"indexes": ["column_stats"]} if operator is BuildIndexOperator else {}
    with pytest.raises(AirflowFailException, match=said):
        operator(task_id="run", table="lake.flights", **some, **arguments).execute({})
    assert table.timeline().instants == before


@pytest.mark.parametrize(
    ("operator", "arguments", "said"),
    [
        (ClusteringOperator, {"partitions": 3}, "partitions must be a text, or several, not 3"),
        (ClusteringOperator, {"sort_by": [3]}, r"sort_by must be a text, or several, not \[3\]"),
        (ClusteringOperator, {"max_failures": "x"}, "max_failures must be a whole number"),
        (ClusteringOperator, {"parallel_groups": "x"}, "parallel_groups must be a whole number"),
        (CompactionOperator, {"partitions": 3}, "partitions must be a text"),
        (CompactionOperator, {"max_failures": "x"}, "max_failures must be a whole number"),
        (CleanOperator, {"retained": [1]}, "retained must be a number"),
        (CleanOperator, {"max_failures": "x"}, "max_failures must be a whole number"),
        (ArchiveTimelineOperator, {"max_failures": "x"}, "max_failures must be a whole number"),
        (RollbackFailedWritesOperator, {"reverted_after": [1]}, "reverted_after must be 0 seconds or more"),
        (BuildIndexOperator, {"indexes": 3}, "indexes must be a text, or several, not 3"),
        (ScheduleIndexOperator, {"columns": 3}, "columns must be a text, or several, not 3"),
        (DropIndexOperator, {"indexes": 3}, "indexes must be a text, or several, not 3"),
        (IndexReadySensor, {"indexes": None}, "indexes must be names of indexes, not None"),
    ],
)
def test_services_refuse_what_they_cannot_read(metastore, tmp_path, operator, arguments, said):
    given = {"table": "lake.rides", "schema": COLUMNS, "record_key": ["id"], "table_type": "merge_on_read"}
    CreateTableOperator(task_id="create", location=f"{tmp_path}/rides", **given).execute({})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AirflowFailException, match=said):
        operator(task_id="run", table="lake.rides", **arguments).execute({})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_transaction_needs_a_timeout(metastore):
    with pytest.raises(AirflowFailException, match="timeout must be a timedelta or seconds, not None"):
        BeginTransactionOperator(task_id="begin", timeout=None).execute({})


class TestEmbeddedMetastore:
    def test_it_is_named_in_the_log_and_only_made_by_who_writes(self, monkeypatch, tmp_path, caplog):
        monkeypatch.setattr("airflow_provider.hooks.metastore.get_airflow_home", lambda: str(tmp_path))
        with (
            caplog.at_level("INFO", "airflow_provider.hooks.metastore"),
            pytest.raises(NoSuchObjectError, match="there is no such database yet"),
        ):
            TableHook().resolve("lake.flights")
        file = tmp_path / "table_services" / "metastore.db"
        assert f"the metastore is the file {file} of this machine" in caplog.text
        assert not file.parent.exists()
        MetastoreHook().get_metastore()
        assert file.exists()

    @pytest.mark.parametrize(
        "executor",
        [
            "CeleryExecutor",
            "LocalExecutor,my_team:KubernetesExecutor",
            "airflow.providers.amazon.aws.executors.ecs.ecs_executor.AwsEcsExecutor",
        ],
    )
    def test_it_is_refused_where_each_worker_would_have_its_own(
        self, monkeypatch, tmp_path, connect, executor
    ):
        monkeypatch.setattr("airflow_provider.hooks.metastore.get_airflow_home", lambda: str(tmp_path))
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
        with pytest.raises(InvalidConnectionError, match="create the connection"):
            MetastoreHook().get_metastore()
        assert list(tmp_path.iterdir()) == []
        url = f"sqlite:///{tmp_path}/shared.db"
        connect("table_metastore_default", conn_type="table_metastore", extra=json.dumps({"url": url}))
        MetastoreHook().get_metastore()
