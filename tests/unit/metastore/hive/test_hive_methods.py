"""Methods that only Hive's clients call, on a socket, by a client from Hive's own definition."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.Thrift import TApplicationException

from airflow_provider.metastore import Column, Metastore, PartitionSpec
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.thrift.server.handlers import empty_answers
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from tests.unit.metastore.hive.hives_client import client, create, flights, mart, newer, server, storage

__all__ = ["client", "flights", "mart", "newer", "server"]


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
        """Hive's client raises for an answer that it cannot read, if its definition has the method."""
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
    """An empty request, or a value if the method takes no struct."""
    spec = getattr(ThriftHiveMetastore, f"{method}_args").thrift_spec[number]
    return "x" if spec[3] in ("UTF8", "BINARY") else _Empty()


class _Empty:
    """A struct without fields."""

    def write(self, protocol: Any) -> None:
        protocol.writeStructBegin("")
        protocol.writeFieldStop()
        protocol.writeStructEnd()


def test_every_method_of_the_definition_is_served_and_is_on_the_page(by_database: Metastore) -> None:
    page = (Path(__file__).parents[4] / "docs" / "metastore-methods.md").read_text()
    served = page.partition("## What is left out")[0]
    defined = set(hive.ThriftHiveMetastore.thrift_services)
    assert defined - set(re.findall(r"`(\w+)`", served)) == set()
    with serving(by_database, ServiceOptions("", port=0), housekeeping=False) as server:
        handlers = server._processor._handler
        assert [name for name in sorted(defined) if not callable(getattr(handlers, name))] == []
