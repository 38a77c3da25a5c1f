"""Compaction of a table's log files, and of its metadata table, without Spark."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import CompactionOperator, CreateTableOperator
from airflow_provider.services.compaction import pending_compactions, schedule_compaction
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table import HudiTable, snapshot
from tests.airflow.conftest import xcom
from tests.unit.services.indexed_table import check_indexes, commit, indexed_table, rows


def compacts(table, **arguments) -> CompactionOperator:
    return CompactionOperator(task_id="compact", table=table.location, **arguments)


@pytest.fixture
def table(tmp_path):
    return indexed_table(tmp_path / "trips")


def test_what_is_due_is_compacted(run_dag, table):
    commit(table, 1)
    assert compacts(table).execute({}) == {"table": table.location, "compactions": [], "dry_run": False}
    with DAG("small", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        compacts(table, max_delta_commits="{{ params.most }}", params={"most": 2}, dry_run="True")
    told = xcom(run_dag(dag), "compact")
    due = told["due"]
    assert told == {"table": table.location, "pending": [], "due": due, "dry_run": True}
    assert (due["partitions"], due["file_groups"]) == (["files", "record_index"], 2)
    begun = schedule_compaction(table, CompactionSettings(max_delta_commits=1))
    commit(table, 2)
    assert compacts(table, dry_run=True).execute({})["pending"] == [begun]
    done = compacts(table, max_delta_commits=1, log_file_size_threshold="0").execute({})["compactions"]
    assert [each["instant"] for each in done][:1] == [begun]
    assert [each["file_groups"] for each in done] == [2, 2]
    assert pending_compactions(table) == []
    check_indexes(table)
    assert rows(table) == [1, 2]


def test_a_merge_on_read_table_is_compacted_itself(run_dag, tmp_path):
    create = CreateTableOperator(
        task_id="create",
        table=str(tmp_path / "t"),
        schema={"id": "bigint", "part": "string", "value": "string"},
        record_key="id",
        partition_by="part",
        table_type="MERGE_ON_READ",
        if_not_exists=True,
    )
    assert [create.execute({})["created"], create.execute({})["created"]] == [True, False]
    table = HudiTable.open(str(tmp_path / "t"))
    for value in ("old", "new"):
        changed = {"id": [1, 2], "part": ["a", "b"], "value": [value, value]}
        ingest_arrow(table, pa.table(changed), "upsert", small_file_limit=0)
    assert compacts(table).execute({})["table_compactions"] == []  # a compaction waits for five delta commits
    with DAG("merge_on_read", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        compacts(table, delta_commits="{{ 1 }}", partitions="part=a")
    (done,) = xcom(run_dag(dag), "compact")["table_compactions"]
    assert (done["partitions"], done["file_groups"], done["records"]) == (["part=a"], 1, 1)
    left = compacts(table, hudi_options={"hoodie.compact.inline.max.delta.commits": 1}, dry_run=True)
    assert left.execute({})["of_table"]["due"] is None  # no delta commit since
    ingest_arrow(
        table, pa.table({"id": [2], "part": ["b"], "value": ["newer"]}), "upsert", small_file_limit=0
    )
    assert left.execute({})["of_table"]["due"]["partitions"] == ["part=b"]
    assert compacts(table, log_blocks="2", dry_run=True).execute({})["of_logs"]["due"]["log_files"] == 2
    (done,) = compacts(table, log_blocks="2").execute({})["log_compactions"]
    assert (done["partitions"], done["file_groups"], done["records"]) == (["part=b"], 1, 1)
    assert sorted(snapshot(table).to_table()["value"].to_pylist()) == ["new", "newer"]


def test_hudis_options_say_when(table):
    commit(table, 1)
    due = {"hoodie.metadata.compact.max.delta.commits": 1}
    assert compacts(table, dry_run=True).execute({})["due"] is None
    assert compacts(table, dry_run=True, hudi_options=due).execute({})["due"] is not None
    large = due | {"hoodie.compaction.logfile.size.threshold": 10**9}
    assert compacts(table, dry_run=True, hudi_options=large).execute({})["due"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_delta_commits": "few"}, "max_delta_commits must be a whole number"),
        ({"max_delta_commits": 0}, r"hoodie\.metadata\.compact\.max\.delta\.commits must be"),
        ({"log_file_size_threshold": "-1"}, "log_file_size_threshold must be a whole number"),
        ({"dry_run": "perhaps"}, "dry_run must be"),
    ],
)
def test_wrong_arguments_are_told(table, arguments, told):
    with pytest.raises(AirflowFailException, match=f"InvalidInputError: {told}"):
        compacts(table, **arguments).execute({})
