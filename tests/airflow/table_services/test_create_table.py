"""Creating tables: on storage, in the metastore, twice, and with invalid input."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MissingColumnError,
    NoSuchObjectError,
    TableExistsError,
)
from airflow_provider.metastore import Column
from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.table.hudi_table import HudiTable
from tests.airflow.conftest import xcom

FLIGHTS = {
    "schema": {
        "id": "bigint not null",
        "day": "date",
        "dest": "string",
        "fare": "decimal(10,2)",
        "legs": "array<struct<from:string,to:string>>",
        "at": "timestamp",
    },
    "record_key": ["id"],
    "partition_by": ["day", "dest"],
    "ordering_field": "at",
}


def create(**arguments):
    return CreateTableOperator(task_id="create", **{"table": "lake.flights", **FLIGHTS, **arguments}).execute(
        {}
    )


def test_a_dag_creates_the_table_and_registers_it(run_dag, metastore, tmp_path):
    with DAG("create_table", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        CreateTableOperator(
            task_id="create",
            table="lake.flights",
            location=f"{tmp_path}/{{{{ ds }}}}",
            comment="by {{ dag.dag_id }}",
            **FLIGHTS,
        )
    run = run_dag(dag, logical_date=datetime(2024, 5, 1, tzinfo=UTC))
    location = f"{tmp_path}/2024-05-01"
    assert xcom(run, "create") == {"table": "lake.flights", "location": location, "created": True}

    config = HudiTable.open(location).config
    assert (config.database, config.name) == ("lake", "flights")
    assert config.record_key_fields == ("id",)
    assert config.partition_fields == ("day", "dest")
    assert config.ordering_fields == ("at",)

    registered = metastore.get_table("lake", "flights")
    assert registered.location == location
    assert list(registered.schema) == [
        Column("id", "bigint"),
        Column("fare", "decimal(10,2)"),
        Column("legs", "array<struct<from:string,to:string>>"),
        Column("at", "timestamp"),
    ]
    assert list(registered.partition_keys) == [Column("day", "date"), Column("dest", "string")]
    assert registered.parameters == {"spark.sql.sources.provider": "hudi", "comment": "by create_table"}


def test_writers_of_a_table_do_not_block_each_other_where_it_says_so(metastore, tmp_path):
    buckets = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
    given = {"location": f"{tmp_path}/flights", "concurrency": "non_blocking", "hudi_options": buckets}
    with pytest.raises(AirflowFailException, match="of a COPY_ON_WRITE table"):
        create(**given)
    assert not (tmp_path / "flights").exists()
    create(**given, table_type="merge_on_read")
    assert HudiTable.open(f"{tmp_path}/flights").is_non_blocking
    assert create(**given, table_type="merge_on_read", if_not_exists=True)["created"] is False


def test_the_metastore_knows_that_a_table_is_merged_on_read(metastore, tmp_path):
    create(location=f"{tmp_path}/flights", table_type="merge_on_read")
    assert metastore.get_table("lake", "flights").parameters["hoodie.table.type"] == "MERGE_ON_READ"


def test_a_table_without_a_record_key_that_is_insert_only(metastore, tmp_path):
    options = {"hoodie.table.transactional_properties": "insert_only"}
    keyless = {"record_key": None, "ordering_field": None, "location": f"{tmp_path}/flights"}
    create(**keyless, hudi_options=options)
    assert create(**keyless, hudi_options=options, if_not_exists=True)["created"] is False
    assert HudiTable.open(f"{tmp_path}/flights").config.generates_keys
    assert metastore.get_table("lake", "flights").parameters["transactional_properties"] == "insert_only"
    for operation in ("upsert", "delete"):
        with pytest.raises(AirflowFailException, match=rf"{operation} of table lake.flights.*insert-only"):
            IngestOperator(
                task_id="load", table="lake.flights", source="/nowhere", operation=operation
            ).execute({"ti": None})


def test_the_databases_location_holds_tables_that_name_none(metastore, tmp_path):
    metastore.create_database("lake", f"{tmp_path}/lake/")
    assert create()["location"] == f"{tmp_path}/lake/flights"
    assert HudiTable.open(f"{tmp_path}/lake/flights").schema.names == list(FLIGHTS["schema"])


def test_a_table_given_by_its_path_is_not_registered(metastore, tmp_path):
    location = str(tmp_path / "flights")
    assert create(table=location) == {"table": location, "location": location, "created": True}
    assert metastore.list_databases() == ["default"]
    assert create(table=location, if_not_exists=True)["created"] is False


def test_if_not_exists_takes_what_is_there_and_repairs_what_is_missing(metastore, tmp_path):
    location = str(tmp_path / "flights")
    # The first try died after it created the table on storage, before it registered it in the metastore.
    create(table=location)
    first = create(location=location, if_not_exists=True)
    assert first["created"] is False
    table_id = metastore.get_table("lake", "flights").id
    assert create(location=location, if_not_exists=True) == first
    assert create(if_not_exists=True) == first
    assert metastore.get_table("lake", "flights").id == table_id


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"record_key": ["id", "at"]}, "record key: id; asked for: id, at"),
        ({"partition_by": "day"}, "partition columns: day, dest; asked for: day"),
        ({"ordering_field": None}, "ordering field: at; asked for: none"),
        ({"schema": {**FLIGHTS["schema"], "fare": "double"}}, "fare decimal(10,2)"),
    ],
)
def test_if_not_exists_does_not_take_another_table(metastore, tmp_path, changed, what):
    create(table=str(tmp_path / "flights"))
    with pytest.raises(AirflowFailException) as raised:
        create(table=str(tmp_path / "flights"), if_not_exists=True, **changed)
    assert isinstance(raised.value.__cause__, TableExistsError)
    assert what in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"record_key": ["nr"]}, MissingColumnError, "record key column 'nr' is not in the schema"),
        ({"record_key": []}, InvalidInputError, "record_key names no column"),
        ({"partition_by": ["month"]}, MissingColumnError, "partition column 'month'"),
        ({"ordering_field": "ts"}, MissingColumnError, "ordering column 'ts'"),
        ({"schema": {"id": "varchar(3)"}}, InvalidInputError, "type 'varchar' is not known"),
        ({"schema": pa.schema([("id", pa.duration("s"))])}, InvalidInputError, "duration"),
        ({"schema": {"id": "bigint", "_hoodie_file_name": "string"}}, InvalidInputError, "meta column"),
        ({"table": "flights"}, InvalidInputError, "of the form database.table"),
        ({"table": "lake.fli-ghts"}, InvalidInputError, "fli-ghts"),
        ({"location": "relative/path"}, InvalidInputError, "relative path"),
        ({"location": None}, NoSuchObjectError, "database 'lake' has no location"),
    ],
)
def test_input_that_cannot_work_fails_without_a_retry_and_leaves_no_trace(
    metastore, tmp_path, arguments, error, message
):
    with pytest.raises(AirflowFailException) as raised:
        create(**{"location": str(tmp_path / "flights"), **arguments})
    assert isinstance(raised.value.__cause__, error)
    assert str(raised.value).startswith(f"{type(raised.value.__cause__).__name__}: ")
    assert message in str(raised.value)
    assert not (tmp_path / "flights").exists()
    assert all(metastore.list_tables(database) == [] for database in metastore.list_databases())


def test_a_table_that_exists_is_an_error_unless_allowed(metastore, tmp_path):
    location = str(tmp_path / "flights")
    create(location=location)
    with pytest.raises(
        AirflowFailException, match=r"registered already, at .*set if_not_exists=True"
    ) as raised:
        create(location=location)
    assert isinstance(raised.value.__cause__, AlreadyExistsError)
    with pytest.raises(AirflowFailException, match=f"registered already, at {location}, not /elsewhere"):
        create(location="/elsewhere", if_not_exists=True)
    with pytest.raises(AirflowFailException, match="or set if_not_exists=True") as raised:
        create(table=location)
    assert isinstance(raised.value.__cause__, TableExistsError)


@pytest.mark.parametrize("if_not_exists", [True, False])
def test_a_table_inside_another_tables_folder_is_refused(metastore, tmp_path, if_not_exists):
    create(location=f"{tmp_path}/flights")
    with pytest.raises(AirflowFailException, match=rf"is inside the folder of the table {tmp_path}/flights,"):
        create(table="lake.inner", location=f"{tmp_path}/flights/inner", if_not_exists=if_not_exists)
    with pytest.raises(NoSuchObjectError):
        metastore.get_table("lake", "inner")
