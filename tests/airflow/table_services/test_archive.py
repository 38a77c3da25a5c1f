"""Archival of a table's timeline, without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import ArchiveTimelineOperator
from airflow_provider.table.timeline.archived_timeline import archived_instants
from tests.airflow.conftest import xcom
from tests.airflow.flights import COLUMNS, rows_of


def archives(**arguments) -> ArchiveTimelineOperator:
    return ArchiveTimelineOperator(task_id="archive", **{"table": "lake.flights", **arguments})


@pytest.fixture
def loaded(table) -> list[str]:
    """The requested times of five loads."""
    rows = [dict(zip(COLUMNS, (number, "mon", 1.0), strict=True)) for number in range(5)]
    return [ingest_arrow(table.location, pa.Table.from_pylist([row]))["instant"] for row in rows]


def test_the_oldest_instants_leave(run_dag, metastore, table, loaded):
    with DAG("short", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        archives(keep_min_commits="{{ params.keep }}", keep_max_commits="3", params={"keep": 2}, dry_run=True)
    told = xcom(run_dag(dag), "archive")
    expected = {"table": "lake.flights", "archived": loaded[:3], "deleted": [], "trimmed": 3, "held_by": None}
    assert told == {**expected, "dry_run": True}
    assert [instant.requested_time for instant in table.timeline().commits()] == loaded

    assert archives(keep_min_commits=2, keep_max_commits=3).execute({}) == {**expected, "dry_run": False}
    assert [instant.requested_time for instant in table.timeline().commits()] == loaded[3:]
    assert [instant.requested_time for instant in archived_instants(table.storage)] == loaded[:3]
    assert rows_of(table) == [(number, "mon", 1.0) for number in range(5)]
    nothing = archives(table=table.location, dead_writers_after=timedelta(hours=1)).execute({})
    assert (nothing["archived"], nothing["held_by"]) == ([], None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"keep_min_commits": "few"}, "keep_min_commits must be a whole number"),
        ({"keep_min_commits": 5, "keep_max_commits": 5}, r"hoodie\.keep\.min\.commits must be"),
        ({"dead_writers_after": "soon"}, "dead_writers_after must be"),
        ({"dry_run": "perhaps"}, "dry_run must be"),
    ],
)
def test_wrong_arguments_are_told(metastore, table, arguments, told):
    with pytest.raises(AirflowFailException, match=f"InvalidInputError: {told}"):
        archives(**arguments).execute({})
