"""Keeping a table's metadata table small, without Spark."""

from __future__ import annotations

from datetime import datetime

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.operators import CompactionOperator
from airflow_provider.services.compaction import pending_compactions, schedule_compaction
from airflow_provider.services.compaction_plan import CompactionSettings
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
