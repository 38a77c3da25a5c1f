"""Methods that Hive's clients call beside those of ours, asked on a socket by Hive's own definition."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TApplicationException
from thrift.transport import TTransport
from thrift.transport.TSocket import TSocket
from thriftpy2.rpc import make_client

from airflow_provider.metastore import CachedStore, Column, Metastore, PartitionSpec
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.thrift.server.handlers import empty_answers
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from airflow_provider.metastore.thrift.server.server import MetastoreServer


@pytest.fixture
def server(by_database: Metastore, tmp_path: Path) -> Iterator[MetastoreServer]:
    options = ServiceOptions("", port=0, warehouse=f"{tmp_path}/warehouse", manages_folders=True)
    with serving(by_database, options, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def client(server: MetastoreServer) -> Iterator[Any]:
    transport = TTransport.TBufferedTransport(TSocket("127.0.0.1", server.port))
    transport.open()
    yield ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
    transport.close()


@pytest.fixture
def newer(server: MetastoreServer) -> Iterator[Any]:
    """For methods of Hive 4.1, which the definition above does not have."""
    opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
    yield opened
    opened.close()


@pytest.fixture
def flights(by_database: Metastore) -> list[str]:
    """Partitions of ``lake.flights``: two below its folder, one elsewhere."""
    places = {"1": "/lake/flights/year=2013/month=1", "2": "/lake/flights/year=2013/month=2", "10": "/else"}
    specs = [PartitionSpec(("2013", month), place, {"k": month}) for month, place in places.items()]
    by_database.add_partitions("lake", "flights", specs)
    return ["year=2013/month=1", "year=2013/month=10", "year=2013/month=2"]


def storage(location: str | None = None) -> Any:
    return ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema("id", "bigint", "")],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=ttypes.SerDeInfo("s", "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", {}),
    )


def create(client: Any, name: str, **fields: Any) -> None:
    keys = [ttypes.FieldSchema("d", "string", "")]
    given = {"dbName": "mart", "tableName": name, "sd": storage(), "partitionKeys": keys, "parameters": {}}
    client.create_table(ttypes.Table(**(given | fields)))


@pytest.fixture
def mart(client: Any) -> Path:
    """A database in the warehouse, with the tables ``a`` and ``b``; its folder."""
    client.create_database(ttypes.Database(name="mart"))
    create(client, "a")
    create(client, "b")
    return Path(client.get_database("mart").locationUri)


class TestPartitions:
    def test_appended_by_values_and_by_name(self, client: Any, newer: Any, mart: Path) -> None:
        assert client.append_partition("mart", "a", ["1"]).sd.location == f"{mart}/a/d=1"
        context = ttypes.EnvironmentContext({})
        client.append_partition_with_environment_context("mart", "a", ["2"], context)
        assert client.append_partition_by_name("mart", "a", "d=3").values == ["3"]
        client.append_partition_by_name_with_environment_context("mart", "a", "d=x%2Fy", context)
        for asked in ({"name": "d=5"}, {"partVals": ["6"]}):
            newer.append_partition_req(hive.AppendPartitionsRequest(dbName="mart", tableName="a", **asked))
        names = client.get_partition_names("mart", "a", -1)
        assert names == [f"d={one}" for one in ("1", "2", "3", "5", "6", "x%2Fy")]
        assert (mart / "a" / "d=5").is_dir()
        with pytest.raises(ttypes.AlreadyExistsException):
            client.append_partition("mart", "a", ["1"])

    def test_dropped_by_values_and_by_name(self, client: Any, newer: Any, mart: Path) -> None:
        for value in "1234":
            client.append_partition("mart", "a", [value])
        context = ttypes.EnvironmentContext({})
        assert client.drop_partition_by_name_with_environment_context("mart", "a", "d=1", False, context)
        for asked in ({"partName": "d=2"}, {"partVals": ["3"], "deleteData": True}):
            newer.drop_partition_req(hive.DropPartitionRequest(dbName="mart", tblName="a", **asked))
        assert client.get_partition_names("mart", "a", -1) == ["d=4"]
        assert sorted(one.name for one in (mart / "a").iterdir()) == ["d=1", "d=2", "d=4"]

    def test_altered_in_a_context(self, client: Any, mart: Path) -> None:
        changed = client.append_partition("mart", "a", ["1"])
        changed.parameters = {"k": "v"}
        client.alter_partition_with_environment_context("mart", "a", changed, None)
        assert client.get_partition("mart", "a", ["1"]).parameters["k"] == "v"

    def test_exchanged_with_their_folders_all_or_none(self, client: Any, mart: Path) -> None:
        for value in ("1", "2"):
            client.append_partition("mart", "a", [value])
            (mart / "a" / f"d={value}" / "data").write_text(value)
        moved = client.exchange_partition({"d": "1"}, "mart", "a", "mart", "b")
        assert (moved.tableName, moved.values, moved.sd.location) == ("b", ["1"], f"{mart}/b/d=1")
        assert (mart / "b" / "d=1" / "data").read_text() == "1"
        assert client.get_partition_names("mart", "a", -1) == ["d=2"]
        client.append_partition("mart", "a", ["1"])
        with pytest.raises(ttypes.MetaException, match="exists already"):
            client.exchange_partitions({"d": ""}, "mart", "a", "mart", "b")
        assert client.get_partition_names("mart", "a", -1) == ["d=1", "d=2"]
        assert (mart / "a" / "d=2" / "data").read_text() == "2"

    def test_exchanged_only_between_tables_of_one_shape(self, client: Any, mart: Path) -> None:
        create(client, "c", partitionKeys=[ttypes.FieldSchema("e", "string", "")])
        with pytest.raises(ttypes.InvalidObjectException, match="different columns or partition keys"):
            client.exchange_partition({"d": "1"}, "mart", "a", "mart", "c")
        with pytest.raises(ttypes.MetaException, match="no partition with"):
            client.exchange_partitions({"d": "1"}, "mart", "a", "mart", "b")
        with pytest.raises(ttypes.InvalidObjectException, match="no partition key 'x'"):
            client.exchange_partitions({"x": "1"}, "mart", "a", "mart", "b")

    def test_as_specs_that_share_their_storage(self, client: Any, flights: list[str]) -> None:
        shared, composed = client.get_partitions_pspec("lake", "flights", -1)
        assert shared.rootPath == "/lake/flights"
        paths = [one.relativePath for one in shared.sharedSDPartitionSpec.partitions]
        assert paths == ["/year=2013/month=1", "/year=2013/month=2"]
        assert [one.sd.location for one in composed.partitionList.partitions] == ["/else"]
        [found] = client.get_part_specs_by_filter("lake", "flights", "month = 2", -1)
        assert [one.values for one in found.sharedSDPartitionSpec.partitions] == [["2013", "2"]]
        request = ttypes.PartitionsByExprRequest(dbName="lake", tblName="flights", expr=b"month = 10")
        [found] = client.get_partitions_spec_by_expr(request).partitionsSpec
        assert [one.values for one in found.partitionList.partitions] == [["2013", "10"]]
        assert client.get_partition_names_req(request) == ["year=2013/month=10"]

    def test_specs_are_added_as_they_were_told(
        self, client: Any, by_database: Metastore, flights: list[str]
    ) -> None:
        specs = client.get_partitions_pspec("lake", "flights", -1)
        before = by_database.get_partitions("lake", "flights")
        by_database.drop_partitions("lake", "flights", [one.values for one in before])
        assert client.add_partitions_pspec(specs) == 3
        assert by_database.get_partitions("lake", "flights") == before

    @pytest.mark.parametrize(
        ("mode", "filters", "months"),
        [
            (ttypes.PartitionFilterMode.BY_NAMES, ["year=2013/month=2"], {"2"}),
            (ttypes.PartitionFilterMode.BY_VALUES, ["2013", "10"], {"10"}),
            (ttypes.PartitionFilterMode.BY_EXPR, ["year = 2013", "month < 10"], {"1", "2"}),
            (None, None, {"1", "2", "10"}),
        ],
    )
    def test_chosen_and_projected(
        self, client: Any, flights: list[str], mode: int | None, filters: list[str] | None, months: set[str]
    ) -> None:
        request = ttypes.GetPartitionsRequest(
            dbName="lake",
            tblName="flights",
            projectionSpec=ttypes.GetProjectionsSpec(fieldList=["values", "sd.location", "parameters"]),
            filterSpec=ttypes.GetPartitionsFilterSpec(filterMode=mode, filters=filters),
        )
        found: list[Any] = []
        for spec in client.get_partitions_with_specs(request).partitionSpec:
            found += (spec.sharedSDPartitionSpec or spec.partitionList).partitions
        assert {one.values[1] for one in found} == months
        assert all(one.parameters == {"k": one.values[1]} and one.createTime is None for one in found)

    def test_a_projection_names_fields_and_parameters_that_exist(
        self, client: Any, by_database: Metastore
    ) -> None:
        spec = PartitionSpec(("2013", "1"), "/else", {"keep": "1", "kept": "2", "drop": "3"})
        by_database.add_partitions("lake", "flights", [spec])

        def ask(**projection: Any) -> Any:
            wanted = ttypes.GetProjectionsSpec(**projection)
            request = ttypes.GetPartitionsRequest(dbName="lake", tblName="flights", projectionSpec=wanted)
            return client.get_partitions_with_specs(request).partitionSpec[0].partitionList.partitions[0]

        found = ask(includeParamKeyPattern="ke%", excludeParamKeyPattern="%t")
        assert (found.parameters, found.values) == ({"keep": "1"}, ["2013", "1"])
        with pytest.raises(ttypes.MetaException, match="no field 'nothing'"):
            ask(fieldList=["nothing"])

    def test_values_are_told_apart_ordered_and_cut(self, client: Any, mart: Path) -> None:
        for value in ("b", "a", "c/d"):
            client.append_partition("mart", "a", [value])
        key = [ttypes.FieldSchema("d", "string", "")]

        def ask(**fields: Any) -> list[str]:
            given: dict[str, Any] = {"dbName": "mart", "tblName": "a", "partitionKeys": key}
            answer = client.get_partition_values(ttypes.PartitionValuesRequest(**(given | fields)))
            return ["/".join(one.row) for one in answer.partitionValues]

        assert ask() == ["a", "b", "c%2Fd"]  # escaped, as in Hive
        assert ask(ascending=False, maxParts=2) == ["c%2Fd", "b"]
        assert ask(filter="d < 'b'", applyDistinct=False) == ["a"]
        with pytest.raises(ttypes.MetaException, match="no partition key 'x'"):
            ask(partitionKeys=[ttypes.FieldSchema("x", "string", "")])

    def test_names_are_read(self, client: Any, flights: list[str]) -> None:
        assert client.partition_name_to_vals("d=a%2Fb/n=1") == ["a/b", "1"]
        assert client.partition_name_to_spec("d=a/n=1") == {"d": "a", "n": "1"}
        assert client.partition_name_has_valid_characters(["é/"], True)
        with pytest.raises(ttypes.MetaException, match="'x' is not KEY=VALUE"):
            client.partition_name_to_vals("d=1/x")
        found = client.get_partitions_with_auth("lake", "flights", 2, "me", [])
        assert [one.values[1] for one in found] == ["1", "10"]

    def test_the_beginning_of_values_is_no_longer_than_the_keys(
        self, client: Any, flights: list[str]
    ) -> None:
        assert client.get_partition_names_ps("lake", "flights", ["", "10"], -1) == ["year=2013/month=10"]
        with pytest.raises(ttypes.MetaException, match="has 2 partition keys, and 3 values are given"):
            client.get_partition_names_ps("lake", "flights", ["2013", "1", "x"], -1)


class TestTables:
    def test_an_empty_pattern_names_none(self, client: Any) -> None:
        assert client.get_tables("lake", "") == []
        assert client.get_tables("lake", "*") == ["flights"]

    @pytest.fixture
    def owned(self, by_database: Metastore) -> None:
        for name, owner, parameters in (
            ("one", "me", {"table_type": "ICEBERG"}),
            ("two", "you", {"table_type": "DELTA", "x": "1"}),
        ):
            by_database.create_table(
                "lake", name, location=f"/{name}", schema=[], owner=owner, parameters=parameters
            )

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ('hive_filter_field_owner__ = "me"', ["one"]),
            ('hive_filter_field_owner__ like ".*o.*" and hive_filter_field_last_access__ = 0', ["two"]),
            ('hive_filter_field_params__table_type = "ICEBERG"', ["one"]),
            ('hive_filter_field_params__TABLE_TYPE = "ICEBERG"', []),
            # Of tables that have the parameter.
            ('hive_filter_field_params__x <> "2"', ["two"]),
            ('hive_filter_field_params__table_type like "%E%"', ["one", "two"]),
            ("", ["flights", "one", "two"]),
        ],
    )
    def test_named_by_a_filter(self, client: Any, owned: None, text: str, names: list[str]) -> None:
        assert client.get_table_names_by_filter("lake", text, -1) == names
        assert client.get_table_names_by_filter("lake", text, 1) == names[:1]

    def test_a_filter_that_is_none_is_refused(self, client: Any) -> None:
        with pytest.raises(ttypes.InvalidOperationException, match="'month' is no"):
            client.get_table_names_by_filter("lake", "month = 1", -1)
        with pytest.raises(ttypes.UnknownDBException):
            client.get_table_names_by_filter("sea", "", -1)

    def test_named_with_a_limit(self, client: Any, owned: None) -> None:
        request = ttypes.GetTablesExtRequest("hive", "lake", "*", 1, 2)
        assert [one.tblName for one in client.get_tables_ext(request)] == ["flights", "one"]

    def test_translated_without_being_created(self, client: Any, mart: Path) -> None:
        table = ttypes.Table(dbName="mart", tableName="New", sd=storage(), parameters={"EXTERNAL": "TRUE"})
        told = client.translate_table_dryrun(ttypes.CreateTableRequest(table=table))
        assert (told.tableType, told.sd.location) == ("EXTERNAL_TABLE", f"{mart}/new")
        assert client.get_all_tables("mart") == ["a", "b"]

    def test_truncated(self, client: Any, mart: Path, by_database: Metastore) -> None:
        create(client, "plain", partitionKeys=[], parameters={"numRows": "7", "mine": "7"})
        files = [mart / "plain" / "data", mart / "a" / "d=1" / "data", mart / "a" / "d=2" / "data"]
        for value in "12":
            client.append_partition("mart", "a", [value])
        for file in files:
            file.write_text("rows")
        client.truncate_table("mart", "plain", None)
        parameters = client.get_table("mart", "plain").parameters
        assert {name: parameters[name] for name in ("numRows", "mine")} == {"numRows": "0", "mine": "7"}
        request = ttypes.TruncateTableRequest(dbName="mart", tableName="a", partNames=["d=1"])
        client.truncate_table_req(request)
        assert [file.exists() for file in files] == [False, False, True]
        assert all(file.parent.is_dir() for file in files)
        told = [one for one in by_database.next_events(0) if one.message.get("isTruncateOp") == "true"]
        assert [(one.event_type, one.table) for one in told] == [
            ("ALTER_TABLE", "plain"),
            ("ALTER_PARTITION", "a"),
        ]
        with pytest.raises(ttypes.MetaException, match="has no partition"):
            client.truncate_table("mart", "a", ["d=3"])

    @pytest.mark.parametrize("options", [{"table_type": "EXTERNAL_TABLE"}, {}])
    def test_what_is_not_managed_here_is_not_truncated(
        self, client: Any, by_database: Metastore, tmp_path: Path, options: dict[str, str]
    ) -> None:
        (tmp_path / "data").write_text("rows")
        by_database.create_table("lake", "other", location=f"{tmp_path}", schema=[], **options)
        with pytest.raises(ttypes.MetaException, match=r"table lake\.other"):
            client.truncate_table("lake", "other", None)
        assert (tmp_path / "data").exists()

    def test_columns_in_a_context(self, client: Any) -> None:
        names = [one.name for one in client.get_fields_with_environment_context("lake", "flights", None)]
        assert names == ["id", "dest"]
        schema = client.get_schema_with_environment_context("lake", "flights", None)
        assert [one.name for one in schema] == ["id", "dest", "year", "month"]

    def test_functions_are_replaced(self, client: Any, by_database: Metastore) -> None:
        by_database.create_function("lake", "f", "a.B")
        function = client.get_function("lake", "f")
        function.className = "c.D"
        client.alter_function("lake", "f", function)
        assert client.get_function("lake", "f").className == "c.D"
        with pytest.raises(ttypes.InvalidOperationException, match="does not exist"):
            client.alter_function("lake", "g", function)

    def test_there_is_one_catalog(self, client: Any, tmp_path: Path) -> None:
        assert client.get_catalogs().names == ["hive"]
        catalog = client.get_catalog(ttypes.GetCatalogRequest("hive")).catalog
        assert (catalog.name, catalog.locationUri) == ("hive", f"{tmp_path}/warehouse")
        with pytest.raises(ttypes.NoSuchObjectException):
            client.get_catalog(ttypes.GetCatalogRequest("spark"))


class TestConstraints:
    @pytest.fixture
    def orders(self, client: Any, by_database: Metastore) -> None:
        columns = [Column("id", "int"), Column("line", "int"), Column("flight", "bigint")]
        by_database.create_table("lake", "orders", location="/o", schema=columns)
        client.add_primary_key(
            ttypes.AddPrimaryKeyRequest(
                [
                    ttypes.SQLPrimaryKey("lake", "orders", "line", 2, "pk", False, False, True),
                    ttypes.SQLPrimaryKey("lake", "orders", "ID", 1, "pk", False, False, True),
                ]
            )
        )
        key = ttypes.SQLForeignKey("lake", "flights", "id", "lake", "orders", "flight", 1, 0, 0, "fk", "pk")
        client.add_foreign_key(ttypes.AddForeignKeyRequest([key]))

    def test_of_every_kind_come_back(self, client: Any, orders: None) -> None:
        place = {"table_db": "lake", "table_name": "orders", "column_name": "line"}
        client.add_unique_constraint(
            ttypes.AddUniqueConstraintRequest([ttypes.SQLUniqueConstraint(**place, key_seq=1)])
        )
        client.add_not_null_constraint(
            ttypes.AddNotNullConstraintRequest([ttypes.SQLNotNullConstraint(**place, nn_name="nn")])
        )
        client.add_default_constraint(
            ttypes.AddDefaultConstraintRequest(
                [ttypes.SQLDefaultConstraint(**place, default_value="1", dc_name="dc")]
            )
        )
        client.add_check_constraint(
            ttypes.AddCheckConstraintRequest(
                [ttypes.SQLCheckConstraint(**place, check_expression="line > 0", dc_name="cc")]
            )
        )
        keys = client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "orders")).primaryKeys
        assert [(one.column_name, one.key_seq, one.pk_name, one.rely_cstr) for one in keys] == [
            ("id", 1, "pk", True),
            ("line", 2, "pk", True),
        ]
        asked = ("hive", "LAKE", "Orders")
        [unique] = client.get_unique_constraints(ttypes.UniqueConstraintsRequest(*asked)).uniqueConstraints
        assert unique.uk_name.startswith("unique_")
        [found] = client.get_not_null_constraints(ttypes.NotNullConstraintsRequest(*asked)).notNullConstraints
        assert found.nn_name == "nn"
        [found] = client.get_default_constraints(ttypes.DefaultConstraintsRequest(*asked)).defaultConstraints
        assert (found.default_value, found.dc_name) == ("1", "dc")
        [found] = client.get_check_constraints(ttypes.CheckConstraintsRequest(*asked)).checkConstraints
        assert (found.check_expression, found.table_name, found.catName) == ("line > 0", "orders", "hive")
        request = ttypes.AllTableConstraintsRequest("lake", "orders", "hive")
        everything = client.get_all_table_constraints(request).allTableConstraints
        assert [len(one) for one in vars(everything).values()] == [2, 1, 1, 1, 1, 1]

    @pytest.mark.parametrize(
        "asked",
        [
            (None, None, "lake", "orders"),
            ("lake", "flights", None, None),
            ("lake", "flights", "lake", "orders"),
        ],
    )
    def test_foreign_keys_are_found_from_both_sides(
        self, client: Any, orders: None, asked: tuple[str | None, ...]
    ) -> None:
        [key] = client.get_foreign_keys(ttypes.ForeignKeysRequest(*asked)).foreignKeys
        assert (key.fktable_name, key.fkcolumn_name) == ("orders", "flight")
        assert (key.pktable_db, key.pktable_name, key.pkcolumn_name) == ("lake", "flights", "id")
        assert client.get_foreign_keys(ttypes.ForeignKeysRequest("lake", "orders")).foreignKeys == []

    def test_follow_their_tables(self, client: Any, by_database: Metastore, orders: None) -> None:
        by_database.rename_table("lake", "flights", "lake", "routes")
        by_database.rename_table("lake", "orders", "lake", "sales")
        [key] = client.get_foreign_keys(ttypes.ForeignKeysRequest("lake", "routes")).foreignKeys
        assert (key.fktable_name, key.pktable_name) == ("sales", "routes")
        by_database.drop_table("lake", "routes")
        assert (
            client.get_foreign_keys(ttypes.ForeignKeysRequest(None, None, "lake", "sales")).foreignKeys == []
        )
        assert len(client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "sales")).primaryKeys) == 2

    def test_are_dropped_by_name(self, client: Any, orders: None) -> None:
        client.drop_constraint(ttypes.DropConstraintRequest("lake", "orders", "PK"))
        assert client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "orders")).primaryKeys == []
        with pytest.raises(ttypes.NoSuchObjectException, match="no constraint 'pk'"):
            client.drop_constraint(ttypes.DropConstraintRequest("lake", "orders", "pk"))

    def test_that_cannot_be_are_refused(self, client: Any, orders: None) -> None:
        def add(*columns: Any) -> None:
            client.add_primary_key(ttypes.AddPrimaryKeyRequest(list(columns)))

        with pytest.raises(ttypes.MetaException, match="has a primary key already"):
            add(ttypes.SQLPrimaryKey("lake", "orders", "flight", 1, "other"))
        with pytest.raises(ttypes.MetaException, match="column 'nope', which it does not have"):
            add(ttypes.SQLPrimaryKey("lake", "flights", "nope", 1, "other"))
        with pytest.raises(ttypes.NoSuchObjectException):
            add(ttypes.SQLPrimaryKey("lake", "nowhere", "id", 1, "other"))

    def test_are_created_with_their_table_or_neither(self, client: Any, mart: Path) -> None:
        def created(name: str) -> Any:
            return ttypes.Table(dbName="mart", tableName=name, sd=storage(), parameters={})

        good = [ttypes.SQLPrimaryKey("mart", "k", "id", 1, "pk")]
        client.create_table_with_constraints(created("k"), good, [], [], [], [], [])
        request = ttypes.CreateTableRequest(
            table=created("m"),
            notNullConstraints=[ttypes.SQLNotNullConstraint(None, "mart", "m", "id", "nn")],
        )
        client.create_table_req(request)
        for name, kind in (("k", "primaryKeys"), ("m", "notNullConstraints")):
            asked = ttypes.AllTableConstraintsRequest("mart", name, "hive")
            told = client.get_all_table_constraints(asked).allTableConstraints
            assert [one.column_name for one in getattr(told, kind)] == ["id"]
        wrong = [ttypes.SQLPrimaryKey("mart", "l", "nope", 1, "pk")]
        with pytest.raises(ttypes.InvalidObjectException, match="'nope'"):
            client.create_table_with_constraints(created("l"), wrong, [], [], [], [], [])
        assert client.get_all_tables("mart") == ["a", "b", "k", "m"]
        assert not (mart / "l").exists()


class TestDatabases:
    def test_an_owner_is_kept(self, client: Any, by_database: Metastore) -> None:
        client.create_database(ttypes.Database(name="mart", ownerName="ann", ownerType=2))
        found = client.get_database("mart")
        assert (found.ownerName, found.ownerType, found.catalogName) == ("ann", 2, "hive")
        found.ownerName, found.ownerType = "bob", 1
        client.alter_database("mart", found)
        found = by_database.get_database("mart")
        assert (found.owner, found.owner_type) == ("bob", 1)
        assert '"6": {"str": "bob"}' in json.dumps(
            json.loads(by_database.next_events(0)[-1].message["dbObjAfterJson"])
        )

    def test_a_metastore_has_one_name_for_good(self, client: Any, by_database: Metastore) -> None:
        told = client.get_metastore_db_uuid()
        assert uuid.UUID(told)
        by_database.drop_table("lake", "flights")
        assert client.get_metastore_db_uuid() == told


class TestStatistics:
    @staticmethod
    def told(month: str | None, low: int, high: int, nulls: int) -> Any:
        long = ttypes.LongColumnStatsData(lowValue=low, highValue=high, numNulls=nulls, numDVs=high - low)
        data = ttypes.ColumnStatisticsData(longStats=long)
        name = None if month is None else f"year=2013/month={month}"
        place = ttypes.ColumnStatisticsDesc(month is None, "lake", "flights", name)
        return ttypes.ColumnStatistics(place, [ttypes.ColumnStatisticsObj("id", "bigint", data)])

    def test_of_partitions_together(self, client: Any, flights: list[str]) -> None:
        client.update_partition_column_statistics(self.told("1", 5, 9, 1))
        client.update_partition_column_statistics(self.told("2", -3, 4, 2))
        request = ttypes.PartitionsStatsRequest("lake", "flights", ["id", "dest"], flights)
        answer = client.get_aggr_stats_for(request)
        assert (answer.partsFound, [one.colName for one in answer.colStats]) == (0, ["id"])
        request.colNames = ["id"]
        answer = client.get_aggr_stats_for(request)
        of_id = answer.colStats[0].statsData.longStats
        assert (answer.partsFound, of_id.lowValue, of_id.highValue) == (2, -3, 9)
        assert (of_id.numNulls, of_id.numDVs) == (3, 7)

    def test_are_told_as_hive_tells_them(
        self, client: Any, by_database: Metastore, r1: CachedStore, flights: list[str]
    ) -> None:
        before = by_database.current_event_id()
        client.update_table_column_statistics(self.told(None, 5, 9, 1))
        request = ttypes.SetPartitionsStatsRequest([self.told("1", 5, 9, 1)], writeId=7)
        client.update_partition_column_statistics_req(request)
        of_table, of_partition = by_database.next_events(before)
        assert (of_table.event_type, of_table.table) == ("UPDATE_TBL_COL_STAT_EVENT", "flights")
        struct = json.loads(of_table.message["colStatsJson"])
        assert struct["2"]["lst"][2]["3"]["rec"]["2"]["rec"]["1"] == {"i64": 5}
        assert of_partition.event_type == "UPDATE_PART_COL_STAT_EVENT"
        told = of_partition.message
        assert (told["writeId"], told["partVals"], told["database"]) == (7, ["2013", "1"], "lake")
        # A replica passes over them.
        r1.catch_up()
        assert r1.statistics().event_id == by_database.current_event_id()

    def test_of_old_and_new_rows_together(self, client: Any) -> None:
        for low, high in ((5, 9), (1, 6)):
            request = ttypes.SetPartitionsStatsRequest([self.told(None, low, high, 1)], needMerge=True)
            assert client.set_aggr_stats_for(request)
        found = client.get_table_column_statistics("lake", "flights", "id").statsObj[0].statsData.longStats
        assert (found.lowValue, found.highValue, found.numNulls) == (1, 9, 2)


def test_the_last_transaction_in_conflict(client: Any, by_database: Metastore) -> None:
    earlier, mine, other, elsewhere = [by_database.open_txn("me", "here") for _ in range(4)]
    by_database.create_table("lake", "other", location="/o", schema=[Column("id", "int")])
    for txn_id in (earlier, mine, other):
        by_database.allocate_table_write_id(txn_id, "lake", "flights")
    by_database.allocate_table_write_id(elsewhere, "lake", "other")
    assert client.get_latest_txnid_in_conflict(mine) == 0
    for txn_id in (other, earlier, elsewhere):
        by_database.commit_txn(txn_id)
    assert client.get_latest_txnid_in_conflict(mine) == other


class TestWhatIsNotKept:
    def test_each_method_is_in_the_definition_and_in_one_table(self) -> None:
        tables = [
            set(one)
            for one in (
                empty_answers._EMPTY,
                empty_answers._TAKEN_NOTE_OF,
                empty_answers._ABSENT,
                empty_answers._REFUSED,
            )
        ]
        names = set().union(*tables)
        assert sum(map(len, tables)) == len(names)
        assert names <= set(hive.ThriftHiveMetastore.thrift_services)

    @pytest.mark.parametrize("method", sorted(empty_answers._EMPTY.keys() | empty_answers._TAKEN_NOTE_OF))
    def test_answers_are_hives_structs(self, client: Any, newer: Any, method: str) -> None:
        """By Hive's definition where it has the method: an answer that it cannot read raises."""
        if hasattr(client, method):
            count = getattr(ThriftHiveMetastore.Client, method).__code__.co_argcount - 1
            requests = [_request_of(method, number + 1) for number in range(count)]
            answer = getattr(client, method)(*requests)
        else:
            count = len(getattr(hive.ThriftHiveMetastore, f"{method}_args").thrift_spec)
            answer = getattr(newer, method)(*([1, {"lake.flights": 1}][:count]))
        for field in [] if answer is None or isinstance(answer, list | dict) else vars(answer).values():
            assert not field or method == "compact2"
        assert not answer or vars(answer) is not None

    def test_a_compaction_is_refused_in_hives_words(self, client: Any) -> None:
        request = ttypes.CompactionRequest("lake", "flights", type=1)
        answer = client.compact2(request)
        assert (answer.accepted, answer.state) == (False, "refused")
        assert "table services" in answer.errormessage
        with pytest.raises(TApplicationException, match="compacts no Hive ACID tables"):
            client.compact(request)

    def test_what_is_looked_up_does_not_exist(self, client: Any) -> None:
        with pytest.raises(ttypes.NoSuchObjectException, match="no resource plan"):
            client.get_resource_plan(ttypes.WMGetResourcePlanRequest("p"))
        with pytest.raises(ttypes.NoSuchObjectException, match="no stored procedure"):
            client.get_stored_procedure(ttypes.StoredProcedureRequest("hive", "lake", "p"))

    def test_roles_and_tokens_are_refused_with_a_reason(self, client: Any) -> None:
        with pytest.raises(ttypes.MetaException, match="roles and privileges are not kept"):
            client.create_role(ttypes.Role("r", 0, "me"))
        with pytest.raises(ttypes.MetaException, match="roles and privileges are not kept"):
            client.grant_privileges(ttypes.PrivilegeBag([]))
        with pytest.raises(ttypes.MetaException, match="delegation tokens are not issued"):
            client.get_delegation_token("me", "me")


def _request_of(method: str, number: int) -> Any:
    """An empty request, or a value where the method takes no struct."""
    spec = getattr(ThriftHiveMetastore, f"{method}_args").thrift_spec[number]
    return "x" if spec[3] in ("UTF8", "BINARY") else _Empty()


class _Empty:
    """A struct without fields."""

    def write(self, protocol: Any) -> None:
        protocol.writeStructBegin("")
        protocol.writeFieldStop()
        protocol.writeStructEnd()


def test_every_method_of_the_definition_is_served_and_is_on_the_page(by_database: Metastore) -> None:
    page = (Path(__file__).parents[3] / "docs" / "metastore-methods.md").read_text()
    served = page.partition("## What is left out")[0]
    defined = set(hive.ThriftHiveMetastore.thrift_services)
    assert defined - set(re.findall(r"`(\w+)`", served)) == set()
    with serving(by_database, ServiceOptions("", port=0), housekeeping=False) as server:
        handlers = server._processor._handler
        assert [name for name in sorted(defined) if not callable(getattr(handlers, name))] == []
