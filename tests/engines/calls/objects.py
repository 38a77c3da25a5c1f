"""Calls about column statistics, constraints, functions, settings, roles, and others of Hive 4's client."""

from __future__ import annotations

from hive_metastore import ttypes

from tests.engines.calls.asking import Asking, partition, table


def calls(hive: Asking) -> None:
    hive.client.create_table(table("t"))
    hive.client.create_table(table("p", (("d", "string"),)))
    hive.client.add_partitions([partition("p", "a"), partition("p", "b")])
    _statistics(hive)
    _constraints(hive)
    _functions(hive)
    _roles(hive)
    _others(hive)


def numbers(of: str, most: int, partition_name: str | None = None) -> object:
    """Statistics of column ``id``."""
    place = ttypes.ColumnStatisticsDesc(
        isTblLevel=partition_name is None, dbName="calls", tableName=of, partName=partition_name
    )
    found = ttypes.LongColumnStatsData(lowValue=1, highValue=most, numNulls=0, numDVs=most)
    data = ttypes.ColumnStatisticsData(longStats=found)
    column = ttypes.ColumnStatisticsObj("id", "bigint", data)
    return ttypes.ColumnStatistics(statsDesc=place, statsObj=[column], engine="hive")


def _statistics(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    ask("update_table_column_statistics", numbers("t", 9), name="update_table_column_statistics")
    told(
        "get_table_column_statistics", lambda: client.get_table_column_statistics("calls", "t", "id").statsObj
    )
    ask("get_table_column_statistics", "calls", "t", "v")
    ask("get_table_column_statistics", "calls", "t", "nope")
    request = ttypes.TableStatsRequest(dbName="calls", tblName="t", colNames=["id", "v", "zz"], engine="hive")
    ask("get_table_statistics_req", request, name="get_table_statistics_req")
    for most, merge in ((7, False), (30, True)):
        change = ttypes.SetPartitionsStatsRequest(
            colStats=[numbers("t", most)], engine="hive", needMerge=merge
        )
        ask("set_aggr_stats_for", change, name=f"set_aggr_stats_for needMerge={merge}")
        told(
            f"get_table_column_statistics after needMerge={merge}",
            lambda: client.get_table_column_statistics("calls", "t", "id").statsObj,
        )
    told(
        "parameters with statistics",
        lambda: sorted(one for one in hive.table("t").parameters if "STAT" in one),
    )
    change = ttypes.SetPartitionsStatsRequest(colStats=[numbers("t", 8)], engine="hive")
    ask("update_table_column_statistics_req", change, name="update_table_column_statistics_req")
    for most, name in ((5, "d=a"), (6, "d=b")):
        of_partition = numbers("p", most, name)
        ask(
            "update_partition_column_statistics",
            of_partition,
            name=f"update_partition_column_statistics {name}",
        )
    asked = ttypes.PartitionsStatsRequest(
        dbName="calls", tblName="p", colNames=["id"], partNames=["d=a", "d=b", "d=nope"], engine="hive"
    )
    ask("get_partitions_statistics_req", asked, name="get_partitions_statistics_req")
    ask("get_aggr_stats_for", asked, name="get_aggr_stats_for")
    ask("delete_table_column_statistics", "calls", "t", "id", "hive")
    ask("delete_table_column_statistics", "calls", "t", "id", "hive", name="delete statistics twice")


def _constraints(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    keys = ttypes.PrimaryKeysRequest(db_name="calls", tbl_name="t")
    ask("get_primary_keys", keys, name="get_primary_keys none")
    key = ttypes.SQLPrimaryKey(
        table_db="calls",
        table_name="t",
        column_name="id",
        key_seq=1,
        pk_name="pk1",
        enable_cstr=False,
        validate_cstr=False,
        rely_cstr=True,
    )
    ask("add_primary_key", ttypes.AddPrimaryKeyRequest([key]), name="add_primary_key")
    told("get_primary_keys", lambda: client.get_primary_keys(keys).primaryKeys)
    ask(
        "get_foreign_keys",
        ttypes.ForeignKeysRequest(foreign_db_name="calls", foreign_tbl_name="t"),
        name="fk",
    )
    place = ("hive", "calls", "t")
    ask("get_not_null_constraints", ttypes.NotNullConstraintsRequest(*place), name="get_not_null_constraints")
    ask("get_unique_constraints", ttypes.UniqueConstraintsRequest(*place), name="get_unique_constraints")
    ask("get_default_constraints", ttypes.DefaultConstraintsRequest(*place), name="get_default_constraints")
    ask("get_check_constraints", ttypes.CheckConstraintsRequest(*place), name="get_check_constraints")
    everything = ttypes.AllTableConstraintsRequest(dbName="calls", tblName="t", catName="hive")
    ask("get_all_table_constraints", everything, name="get_all_table_constraints")
    ask("drop_constraint", ttypes.DropConstraintRequest("calls", "t", "pk1"), name="drop_constraint")
    ask("drop_constraint", ttypes.DropConstraintRequest("calls", "t", "pk1"), name="drop_constraint twice")


def function(name: str, class_name: str = "a.B") -> object:
    jar = ttypes.ResourceUri(ttypes.ResourceType.JAR, "file:/x.jar")
    return ttypes.Function(
        functionName=name,
        dbName="calls",
        className=class_name,
        ownerName="me",
        ownerType=ttypes.PrincipalType.USER,
        createTime=0,
        functionType=ttypes.FunctionType.JAVA,
        resourceUris=[jar],
    )


def _functions(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    ask("create_function", function("Fa"), name="create_function")
    ask("create_function", function("fa"), name="create_function twice")
    ask("create_function", function("a b"), name="create_function bad name")
    ask("get_function", "calls", "FA")
    for pattern in ("*", ".*", "f*", "nope"):
        ask("get_functions", "calls", pattern)
    ask("alter_function", "calls", "fa", function("fa", "c.D"), name="alter_function")
    told("get_function altered", lambda: client.get_function("calls", "fa").className)
    told(
        "get_all_functions",
        lambda: [one.functionName for one in client.get_all_functions().functions if one.dbName == "calls"],
    )
    ask("drop_function", "calls", "fa")
    ask("drop_function", "calls", "fa", name="drop_function twice")
    ask("get_function", "calls", "nope")


def _roles(hive: Asking) -> None:
    ask = hive.ask
    user = ttypes.PrincipalType.USER
    place = ttypes.HiveObjectRef(ttypes.HiveObjectType.TABLE, "calls", "t")
    hive.told("get_role_names", lambda: sorted(hive.client.get_role_names()))
    hive.told("list_roles", lambda: [one.roleName for one in hive.client.list_roles("me", user)])
    ask("create_role", ttypes.Role(roleName="calls", createTime=0, ownerName="me"), name="create_role")
    ask("drop_role", "calls")
    ask("grant_privileges", ttypes.PrivilegeBag([]), name="grant_privileges nothing")
    ask("get_privilege_set", place, "me", [], name="get_privilege_set")
    ask("list_privileges", "me", user, place, name="list_privileges")


def _others(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    direct = "metastore.try.direct.sql"
    ask("setMetaConf", direct, "true")
    ask("getMetaConf", direct)
    ask("setMetaConf", "nope", "true")
    ask("getMetaConf", "nope")
    ask("get_config_value", "metastore.batch.retrieve.max", "50")
    ask("get_config_value", "nope", None)
    ask("set_ugi", "me", ["g"])
    told("get_metastore_db_uuid", lambda: len(client.get_metastore_db_uuid()) > 0)
    ask("getName")
    told("getCounters", lambda: type(client.getCounters()).__name__)
    told("aliveSince", lambda: client.aliveSince() > 0)
    told("getVersion", lambda: bool(client.getVersion()))
    told("getStatus", client.getStatus)
    ask("flushCache")
    for name, request in (
        ("get_all_resource_plans", ttypes.WMGetAllResourcePlanRequest()),
        ("get_active_resource_plan", ttypes.WMGetActiveResourcePlanRequest()),
        ("get_runtime_stats", ttypes.GetRuntimeStatsRequest(maxWeight=10, maxCreateTime=0)),
        ("get_all_stored_procedures", ttypes.ListStoredProcedureRequest("hive")),
        ("scheduled_query_poll", ttypes.ScheduledQueryPollRequest("calls")),
        ("cm_recycle", ttypes.CmRecycleRequest(f"{hive.outside}/none", True)),
        ("show_compact", ttypes.ShowCompactRequest()),
        ("compact2", ttypes.CompactionRequest(dbname="calls", tablename="t", type=1)),
        (
            "get_latest_committed_compaction_info",
            ttypes.GetLatestCommittedCompactionInfoRequest(dbname="calls", tablename="t"),
        ),
    ):
        ask(name, request, name=name)
    for name in (
        "get_all_token_identifiers",
        "get_all_materialized_view_objects_for_rewriting",
        "get_dataconnectors",
    ):
        ask(name)
    ask("get_materialized_views_for_rewriting", "calls")
    ask("heartbeat_lock_materialization_rebuild", "calls", "t", 1)
    ask("get_delegation_token", "me", "me")
    ask("get_type", "t")
    ask("find_next_compact", "worker")
    ask("isPartitionMarkedForEvent", "calls", "p", {"d": "a"}, 1)
