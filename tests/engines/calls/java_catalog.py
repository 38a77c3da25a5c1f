"""Calls of Hive's Java client: settings, databases, tables, partitions, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.engines.calls.java_objects import (
    DATABASE,
    Call,
    call,
    kept,
    partition,
    statistics,
    table,
)


def client() -> Iterator[Call]:
    for method in ("isCompatibleWith", "isSameConfObj"):
        yield call(f"{method}(HiveConf)", kept("settings"))
        yield call(f"{method}(Configuration)", kept("settings"))
    yield call("isLocalMetaStore()")
    yield call("setHiveAddedJars(String)", "")
    yield call("reconnect()")
    yield call("setMetaConf(String,String)", "metastore.try.direct.sql", "true")
    yield call("setMetaConf(String,String)", "hive.metastore.try.direct.sql", "true")
    yield call("getMetaConf(String)", "hive.metastore.try.direct.sql")
    yield call("getConfigValue(String,String)", "hive.metastore.nothing", "none")
    yield call("getConfigValue(String,String)", "something.else", "none")
    yield call("flushCache()")
    yield call("getMetastoreDbUuid()")
    yield call("getServerVersion()")


def databases() -> Iterator[Call]:
    yield call("createDatabase(Database)", {"name": "calls", "description": "d", "parameters": {"a": "b"}})
    yield call("createDatabase(Database)", {"name": "calls", "parameters": {}})
    yield call("getDatabase(String)", "calls", keep="db")
    yield call("getDatabase(String)", "nope")
    yield call("getDatabase(String,String)", "hive", "calls")
    yield call("getDatabases(String)", "cal*")
    yield call("getDatabases(String,String)", "hive", "cal*")
    yield call("getAllDatabases()")
    yield call("getAllDatabases(String)", "hive")
    yield call("alterDatabase(String,Database)", "calls", kept("db", parameters={"a": "c"}))
    yield call("alterDatabase(String,String,Database)", "hive", "calls", kept("db", parameters={"a": "d"}))
    yield call("getDatabase(String)", "calls")
    yield call("getCatalog(String)", "hive")
    yield call("getCatalogs()")
    for name in ("d1", "d2", "d3", "d4", "d5", "d6", "d7"):
        yield call("createDatabase(Database)", {"name": name, "parameters": {}})
    yield call("dropDatabase(String)", "d1")
    yield call("dropDatabase(String)", "d1")
    yield call("dropDatabase(String,boolean,boolean)", "d2", True, True)
    yield call("dropDatabase(String,boolean,boolean)", "d2", True, True)
    yield call("dropDatabase(String,boolean,boolean,boolean)", "d3", True, False, True)
    yield call("dropDatabase(String,String)", "hive", "d4")
    yield call("dropDatabase(String,String,boolean,boolean)", "hive", "d5", True, False)
    yield call("dropDatabase(String,String,boolean,boolean,boolean)", "hive", "d6", True, False, True)
    yield call(
        "dropDatabase(DropDatabaseRequest)",
        {"name": "d7", "catalogName": "hive", "ignoreUnknownDb": False, "deleteData": True, "cascade": False},
    )
    yield call("dropDatabase(String)", "d7")


def tables() -> Iterator[Call]:
    yield call("createTable(Table)", table("t"))
    yield call("createTable(Table)", table("t"))
    yield call("createTable(Table)", table("p", d="string", n="int"))
    yield call("createTable(Table)", table("p2", d="string", n="int"))
    yield call("createTable(CreateTableRequest)", {"table": table("r")})
    yield call("getTranslateTableDryrun(Table)", table("dry"))
    yield call("tableExists(String,String)", DATABASE, "t")
    yield call("tableExists(String,String)", DATABASE, "nope")
    yield call("tableExists(String,String,String)", "hive", DATABASE, "t")
    yield call("tableExists(String)", "t")
    yield call("getTable(String)", "t")
    yield call("getTable(String,String)", DATABASE, "t", keep="t")
    yield call("getTable(String,String)", DATABASE, "nope")
    yield call("getTable(String,String,boolean,String)", DATABASE, "t", False, "hive")
    yield call("getTable(String,String,String)", "hive", DATABASE, "t")
    yield call("getTable(String,String,String,String)", "hive", DATABASE, "t", None)
    yield call(
        "getTable(String,String,String,String,boolean,String)", "hive", DATABASE, "t", None, True, "hive"
    )
    yield call("getTable(GetTableRequest)", {"dbName": DATABASE, "tblName": "p", "catName": "hive"})
    yield call("getTableObjectsByName(String,List)", DATABASE, ["t", "nope", "p"])
    yield call("getTableObjectsByName(String,String,List)", "hive", DATABASE, ["t"])
    yield call("getTables(String,String,List,GetProjectionsSpec)", "hive", DATABASE, ["t"], None)
    for pattern in ("*", "t|p", "nope"):
        yield call("getTables(String,String)", DATABASE, pattern)
    yield call("getTables(String,String,String)", "hive", DATABASE, "*")
    yield call("getTables(String,String,TableType)", DATABASE, "*", "MANAGED_TABLE")
    yield call("getTables(String,String,TableType)", DATABASE, "*", "VIRTUAL_VIEW")
    yield call("getTables(String,String,String,TableType)", "hive", DATABASE, "*", "EXTERNAL_TABLE")
    yield call("getAllTables(String)", DATABASE)
    yield call("getAllTables(String,String)", "hive", DATABASE)
    yield call("getTablesExt(String,String,String,int,int)", "hive", DATABASE, "t", 0, -1)
    yield call("getTableMeta(String,String,List)", DATABASE, "*", ["MANAGED_TABLE"])
    yield call("getTableMeta(String,String,String,List)", "hive", DATABASE, "t", [])
    owned = 'hive_filter_field_owner__ = "me"'
    yield call("listTableNamesByFilter(String,String,short)", DATABASE, owned, -1)
    yield call("listTableNamesByFilter(String,String,String,int)", "hive", DATABASE, owned, 1)
    for method in ("getFields", "getSchema"):
        yield call(f"{method}(String,String)", DATABASE, "p")
        yield call(f"{method}(String,String)", DATABASE, "nope")
        yield call(f"{method}(String,String,String)", "hive", DATABASE, "p")
        request = {"catName": "hive", "dbName": DATABASE, "tblName": "p"}
        kind = method.removeprefix("get")
        yield call(f"{method}Request(Get{kind}Request)", request)
    yield call("getAllMaterializedViewObjectsForRewriting()")
    yield call("getMaterializedViewsForRewriting(String)", DATABASE)
    yield call("getMaterializedViewsForRewriting(String,String)", "hive", DATABASE)


def partitions() -> Iterator[Call]:
    yield call("add_partition(Partition)", partition("p", "a", "1"))
    yield call("add_partition(Partition)", partition("p", "a", "1"))
    yield call("add_partitions(List)", [partition("p", "a", "2"), partition("p", "b", "1")])
    again = [partition("p", "b", "1"), partition("p", "b", "2")]
    yield call("add_partitions(List,boolean,boolean)", again, True, True)
    yield call("add_partitions(List,boolean,boolean)", again, False, True)
    yield call("appendPartition(String,String,List)", DATABASE, "p", ["c", "1"])
    yield call("appendPartition(String,String,String)", DATABASE, "p", "d=c/n=2")
    yield call("appendPartition(String,String,String,List)", "hive", DATABASE, "p", ["c", "3"])
    yield call("appendPartition(String,String,String,String)", "hive", DATABASE, "p", "d=c/n=4")
    yield call("getPartition(String,String,List)", DATABASE, "p", ["a", "1"], keep="a1")
    yield call("getPartition(String,String,List)", DATABASE, "p", ["z", "1"])
    yield call("getPartition(String,String,String)", DATABASE, "p", "d=a/n=1")
    yield call("getPartition(String,String,String,List)", "hive", DATABASE, "p", ["a", "1"])
    yield call("getPartition(String,String,String,String)", "hive", DATABASE, "p", "d=a/n=1")
    yield call(
        "getPartitionRequest(GetPartitionRequest)",
        {"catName": "hive", "dbName": DATABASE, "tblName": "p", "partVals": ["a", "1"]},
    )
    yield call(
        "getPartitionWithAuthInfo(String,String,List,String,List)", DATABASE, "p", ["a", "1"], "me", []
    )
    yield call(
        "getPartitionWithAuthInfo(String,String,String,List,String,List)",
        *("hive", DATABASE, "p", ["a", "1"], "me", []),
    )
    yield call("getPartitionsByNames(String,String,List)", DATABASE, "p", ["d=a/n=1", "d=z/n=1"])
    yield call("getPartitionsByNames(String,String,String,List)", "hive", DATABASE, "p", ["d=a/n=1"])
    by_names = {"db_name": DATABASE, "tbl_name": "p", "names": ["d=a/n=1"]}
    yield call("getPartitionsByNames(GetPartitionsByNamesRequest)", by_names)
    request = {"catName": "hive", "dbName": DATABASE, "tblName": "p", "maxParts": 2}
    yield call("getPartitionsRequest(PartitionsRequest)", request)
    yield call("listPartitions(String,String,short)", DATABASE, "p", -1)
    yield call("listPartitions(String,String,short)", DATABASE, "p", 2)
    yield call("listPartitions(String,String,String,int)", "hive", DATABASE, "p", -1)
    yield call("listPartitions(String,String,List,short)", DATABASE, "p", ["a", ""], -1)
    yield call("listPartitions(String,String,String,List,int)", "hive", DATABASE, "p", ["a", "1"], -1)
    yield call("listPartitionNames(String,String,short)", DATABASE, "p", -1)
    yield call("listPartitionNames(String,String,String,int)", "hive", DATABASE, "p", 1)
    yield call("listPartitionNames(String,String,List,short)", DATABASE, "p", ["a", ""], -1)
    yield call("listPartitionNames(String,String,String,List,int)", "hive", DATABASE, "p", ["a", ""], -1)
    named = {"catName": "hive", "dbName": DATABASE, "tblName": "p", "partValues": ["a", ""], "maxParts": 9}
    yield call("listPartitionNamesRequest(GetPartitionNamesPsRequest)", named)
    expression = {"catName": "hive", "dbName": DATABASE, "tblName": "p", "expr": "", "maxParts": -1}
    yield call("listPartitionNames(PartitionsByExprRequest)", expression)
    values = {"dbName": DATABASE, "tblName": "p", "partitionKeys": [{"name": "d", "type": "string"}]}
    yield call("listPartitionValues(PartitionValuesRequest)", values)
    some = 'd = "a" and n > 1'
    yield call("getNumPartitionsByFilter(String,String,String)", DATABASE, "p", some)
    yield call("getNumPartitionsByFilter(String,String,String,String)", "hive", DATABASE, "p", some)
    yield call("listPartitionsByFilter(String,String,String,short)", DATABASE, "p", some, -1)
    yield call("listPartitionsByFilter(String,String,String,short)", DATABASE, "p", "garbage ((", -1)
    yield call("listPartitionsByFilter(String,String,String,String,int)", "hive", DATABASE, "p", some, -1)
    yield call("listPartitionSpecs(String,String,int)", DATABASE, "p", -1, keep="specs")
    yield call("listPartitionSpecs(String,String,String,int)", "hive", DATABASE, "p", -1)
    yield call("listPartitionSpecsByFilter(String,String,String,int)", DATABASE, "p", some, -1, keep="some")
    yield call("listPartitionSpecsByFilter(String,String,String,String,int)", "hive", DATABASE, "p", some, -1)
    yield call("listPartitionsSpecByExpr(PartitionsByExprRequest,List)", expression, [], filled=1)
    given = (DATABASE, "p", "", None, -1, [])
    yield call("listPartitionsByExpr(String,String,byte[],String,short,List)", *given, filled=5)
    yield call("listPartitionsByExpr(String,String,String,byte[],String,int,List)", "hive", *given, filled=6)
    yield call("listPartitionsWithAuthInfo(String,String,short,String,List)", DATABASE, "p", 1, "me", [])
    yield call(
        "listPartitionsWithAuthInfo(String,String,String,int,String,List)", "hive", DATABASE, "p", 1, "me", []
    )
    with_values = (DATABASE, "p", ["a", ""], -1, "me", [])
    yield call("listPartitionsWithAuthInfo(String,String,List,short,String,List)", *with_values)
    yield call("listPartitionsWithAuthInfo(String,String,String,List,int,String,List)", "hive", *with_values)
    request = {"catName": "hive", "dbName": DATABASE, "tblName": "p", "partVals": ["a", ""], "userName": "me"}
    yield call("listPartitionsWithAuthInfoRequest(GetPartitionsPsWithAuthRequest)", request)
    specs = {
        "catName": "hive",
        "dbName": DATABASE,
        "tblName": "p",
        "projectionSpec": {"fieldList": ["values"]},
        "filterSpec": {"filterMode": "BY_NAMES", "filters": ["d=a/n=1"]},
    }
    yield call("getPartitionsWithSpecs(GetPartitionsRequest)", specs)
    yield call("validatePartitionNameCharacters(List)", ["a", "1"])
    yield call("partitionNameToVals(String)", "d=a%3Ab/n=1")
    yield call("partitionNameToSpec(String)", "d=a%3Ab/n=1")


def statistics_of() -> Iterator[Call]:
    yield call("updateTableColumnStatistics(ColumnStatistics)", statistics("t"))
    yield call("updatePartitionColumnStatistics(ColumnStatistics)", statistics("p", "d=a/n=1"))
    yield call(
        "setPartitionColumnStatistics(SetPartitionsStatsRequest)",
        {"colStats": [statistics("p", "d=a/n=2")], "engine?": "hive"},
    )
    yield call("getTableColumnStatistics(String,String,List)", DATABASE, "t", ["id"])
    yield call("getTableColumnStatistics(String,String,List,String)", DATABASE, "t", ["id"], "hive")
    yield call(
        "getTableColumnStatistics(String,String,List,String,String)", DATABASE, "t", ["id"], "hive", None
    )
    yield call(
        "getTableColumnStatistics(String,String,String,List,String)", "hive", DATABASE, "t", ["id"], "hive"
    )
    yield call(
        "getTableColumnStatistics(String,String,String,List,String,String)",
        *("hive", DATABASE, "t", ["id"], "hive", None),
    )
    names = (DATABASE, "p", ["d=a/n=1", "d=a/n=2"], ["id"])
    yield call("getPartitionColumnStatistics(String,String,List,List)", *names)
    yield call("getPartitionColumnStatistics(String,String,List,List,String)", *names, "hive")
    yield call("getPartitionColumnStatistics(String,String,List,List,String,String)", *names, "hive", None)
    yield call("getPartitionColumnStatistics(String,String,String,List,List,String)", "hive", *names, "hive")
    yield call(
        "getPartitionColumnStatistics(String,String,String,List,List,String,String)",
        "hive",
        *names,
        "hive",
        None,
    )
    columns = (DATABASE, "p", ["id"], ["d=a/n=1", "d=a/n=2"])
    yield call("getAggrColStatsFor(String,String,List,List)", *columns)
    yield call("getAggrColStatsFor(String,String,List,List,String)", *columns, "hive")
    yield call("getAggrColStatsFor(String,String,List,List,String,String)", *columns, "hive", None)
    yield call("getAggrColStatsFor(String,String,String,List,List,String)", "hive", *columns, "hive")
    yield call(
        "getAggrColStatsFor(String,String,String,List,List,String,String)", "hive", *columns, "hive", None
    )
    one = (DATABASE, "p", "d=a/n=1", "id")
    yield call("deletePartitionColumnStatistics(String,String,String,String)", *one)
    yield call("deletePartitionColumnStatistics(String,String,String,String,String)", *one, "hive")
    yield call("updatePartitionColumnStatistics(ColumnStatistics)", statistics("p", "d=a/n=1"))
    yield call(
        "deletePartitionColumnStatistics(String,String,String,String,String,String)", "hive", *one, "hive"
    )
    yield call("deleteTableColumnStatistics(String,String,String)", DATABASE, "t", "id")
    yield call("deleteTableColumnStatistics(String,String,String,String)", DATABASE, "t", "id", "hive")
    yield call("updateTableColumnStatistics(ColumnStatistics)", statistics("t"))
    yield call(
        "deleteTableColumnStatistics(String,String,String,String,String)", "hive", DATABASE, "t", "id", "hive"
    )
    yield call("getTableColumnStatistics(String,String,List,String)", DATABASE, "t", ["id"], "hive")
    changed = {"tableId": 1, "insertCount": 0, "updatedCount": 0, "deletedCount": 0}
    yield call("updateTransactionalStatistics(UpdateTransactionalStatsRequest)", changed)


def changes() -> Iterator[Call]:
    def told(name: str) -> Call:
        return call("getTable(String,String)", DATABASE, name)

    changed = kept("t", parameters={"k": "1"})
    yield call("alter_table(String,String,Table)", DATABASE, "t", changed)
    yield told("t")
    yield call("alter_table(String,String,Table)", DATABASE, "nope", changed)
    yield call(
        "alter_table(String,String,Table,boolean)", DATABASE, "t", kept("t", parameters={"k": "2"}), True
    )
    context = {"properties": {"x": "y"}}
    changed = kept("t", parameters={"k": "3"})
    yield call(
        "alter_table_with_environmentContext(String,String,Table,EnvironmentContext)",
        DATABASE,
        "t",
        changed,
        context,
    )
    yield call(
        "alter_table(String,String,String,Table)", "hive", DATABASE, "t", kept("t", parameters={"k": "4"})
    )
    changed = kept("t", parameters={"k": "5"})
    yield call(
        "alter_table(String,String,String,Table,EnvironmentContext)", "hive", DATABASE, "t", changed, context
    )
    changed = kept("t", parameters={"k": "6"})
    yield call(
        "alter_table(String,String,String,Table,EnvironmentContext,String)",
        "hive",
        DATABASE,
        "t",
        changed,
        context,
        None,
    )
    yield told("t")
    yield call("alter_table(String,String,Table)", DATABASE, "t", kept("t", tableName="t2"))
    yield told("t")
    yield call("alter_table(String,String,Table)", DATABASE, "t2", kept("t"))

    def partition_now(number: str) -> Mapping[str, Any]:
        return kept("a1", parameters={"k": number})

    yield call("alter_partition(String,String,Partition)", DATABASE, "p", partition_now("1"))
    yield call("getPartition(String,String,List)", DATABASE, "p", ["a", "1"])
    yield call(
        "alter_partition(String,String,Partition,EnvironmentContext)",
        DATABASE,
        "p",
        partition_now("2"),
        context,
    )
    yield call("alter_partition(String,String,String,Partition)", "hive", DATABASE, "p", partition_now("3"))
    given = ("hive", DATABASE, "p", partition_now("4"), context)
    yield call("alter_partition(String,String,String,Partition,EnvironmentContext)", *given)
    yield call("alter_partition(String,String,String,Partition,EnvironmentContext,String)", *given, None)
    yield call("alter_partitions(String,String,List)", DATABASE, "p", [partition_now("5")])
    yield call("alter_partitions(String,String,List)", DATABASE, "p", [partition("p", "z", "1")])
    given = (DATABASE, "p", [partition_now("6")])
    yield call("alter_partitions(String,String,List,EnvironmentContext)", *given, context)
    yield call(
        "alter_partitions(String,String,List,EnvironmentContext,String,long)", *given, context, None, -1
    )
    yield call("alter_partitions(String,String,String,List)", "hive", *given)
    yield call(
        "alter_partitions(String,String,String,List,EnvironmentContext,String,long)",
        "hive",
        *given,
        context,
        None,
        -1,
    )
    yield call("getPartition(String,String,List)", DATABASE, "p", ["a", "1"])
    for new, old, method, more in (
        ("81", "1", "renamePartition(String,String,List,Partition)", ()),
        ("82", "2", "renamePartition(String,String,String,List,Partition,String)", (None,)),
        (
            "83",
            "3",
            "renamePartition(String,String,String,List,Partition,String,long,boolean)",
            (None, -1, False),
        ),
    ):
        catalog = ("hive",) if "String,String,String" in method else ()
        yield call("getPartition(String,String,List)", DATABASE, "p", ["c", old], keep="c")
        yield call(method, *catalog, DATABASE, "p", ["c", old], kept("c", values=["c", new]), *more)
    yield call("listPartitionNames(String,String,short)", DATABASE, "p", -1)
    for old, method in (("81", "exchange_partition"), ("1", "exchange_partitions")):
        spec = {"d": "c" if old == "81" else "b", "n": old}
        yield call(f"{method}(Map,String,String,String,String)", spec, DATABASE, "p", DATABASE, "p2")
        back = (spec, "hive", DATABASE, "p2", "hive", DATABASE, "p")
        yield call(f"{method}(Map,String,String,String,String,String,String)", *back)
    yield call("listPartitionNames(String,String,short)", DATABASE, "p2", -1)
    names = ["d=a/n=1"]
    yield call("truncateTable(String,String,List)", DATABASE, "p", names)
    yield call("truncateTable(TableName,List)", ["hive", DATABASE, "p"], names)
    yield call("truncateTable(String,String,List,String,long)", DATABASE, "p", names, None, -1)
    yield call("truncateTable(String,String,List,String,long,boolean)", DATABASE, "p", names, None, -1, True)
    yield call("truncateTable(String,String,String,List)", "hive", DATABASE, "p", None)
    drop = {"deleteData": True, "ifExists": True, "returnResults": True}
    yield call("dropPartition(String,String,List,boolean)", DATABASE, "p", ["a", "1"], True)
    yield call("dropPartition(String,String,List,boolean)", DATABASE, "p", ["a", "1"], True)
    yield call("dropPartition(String,String,List,PartitionDropOptions)", DATABASE, "p", ["a", "2"], drop)
    yield call("dropPartition(String,String,String,boolean)", DATABASE, "p", "d=b/n=1", True)
    yield call("dropPartition(String,String,String,List,boolean)", "hive", DATABASE, "p", ["b", "2"], True)
    yield call(
        "dropPartition(String,String,String,List,PartitionDropOptions)",
        "hive",
        DATABASE,
        "p",
        ["c", "83"],
        drop,
    )
    yield call("dropPartition(String,String,String,String,boolean)", "hive", DATABASE, "p", "d=c/n=4", True)
    none: list[Any] = [[0, ""]]
    for catalog in ((), ("hive",)):
        strings = "String,String,String" if catalog else "String,String"
        given = (*catalog, DATABASE, "p", none)
        yield call(f"dropPartitions({strings},List,boolean,boolean)", *given, True, True)
        yield call(f"dropPartitions({strings},List,boolean,boolean,boolean)", *given, True, True, True)
        yield call(f"dropPartitions({strings},List,PartitionDropOptions)", *given, drop)
    yield call("add_partitions_pspec(PartitionSpecProxy)", kept("some"))
    yield call("listPartitionNames(String,String,short)", DATABASE, "p", -1)
