"""Changing a table's columns from a DAG."""

from __future__ import annotations

import pyarrow as pa
import pytest
from airflow.exceptions import AirflowFailException

from airflow_provider.exceptions import IncompatibleSchemaError
from airflow_provider.operators import AlterTableOperator, CreateTableOperator
from airflow_provider.table import HudiTable


@pytest.fixture
def location(metastore, tmp_path):
    CreateTableOperator(
        task_id="create",
        table="lake.flights",
        location=str(tmp_path / "flights"),
        schema={"id": "bigint", "delay": "int"},
        record_key=["id"],
        partition_by=[],
    ).execute({})
    return str(tmp_path / "flights")


def alter(**arguments):
    return AlterTableOperator(task_id="alter", table="lake.flights", **arguments).execute({})


def test_the_table_and_the_metastore_follow(metastore, location):
    result = alter(add={"gate": "string"}, widen={"delay": "bigint"}, comment={"delay": "minutes"})
    assert result["table"] == "lake.flights"
    assert len(result["schema_changes"]) == 3
    table = HudiTable.open(location)
    assert table.schema.field("delay").type == pa.int64()
    assert table.schema.names == ["id", "delay", "gate"]
    [commit] = table.timeline().commits()
    assert commit.requested_time == result["instant"]
    columns = {column.name: column.type for column in metastore.get_table("lake", "flights").schema}
    assert (columns["delay"], columns["gate"]) == ("bigint", "string")


def test_done_again_it_changes_nothing(metastore, location):
    alter(add={"gate": "string"})
    again = alter(add={"gate": "string"})
    assert (again["instant"], again["schema_changes"]) == (None, [])


def test_what_cannot_be_fails_without_retries(metastore, location):
    with pytest.raises(AirflowFailException) as raised:
        alter(widen={"delay": "boolean"})
    assert isinstance(raised.value.__cause__, IncompatibleSchemaError)
    assert HudiTable.open(location).timeline().commits() == ()
