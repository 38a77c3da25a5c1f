"""Calls of Hive's Java client: constraints, functions, users, transactions, events, and unkept objects."""

from __future__ import annotations

from collections.abc import Iterator

from tests.engines.calls.java_objects import (
    DATABASE,
    Call,
    call,
    component,
    function,
    kept,
    table,
)


def constraints() -> Iterator[Call]:
    column = {"table_db": DATABASE, "table_name": "t", "column_name": "id"}
    named = {"catName": "hive", "enable_cstr": False, "validate_cstr": False, "rely_cstr": True}
    primary = {**column, **{k: v for k, v in named.items() if k != "catName"}, "key_seq": 1, "pk_name": "pk"}
    foreign = {
        "pktable_db": DATABASE,
        "pktable_name": "t",
        "pkcolumn_name": "id",
        "fktable_db": DATABASE,
        "fktable_name": "p2",
        "fkcolumn_name": "id",
        "key_seq": 1,
        "fk_name": "fk",
        "pk_name": "pk",
    }
    yield call("addPrimaryKey(List)", [primary])
    yield call("addForeignKey(List)", [foreign])
    columns = {**named, **column}
    yield call("addUniqueConstraint(List)", [{**columns, "key_seq": 1, "uk_name": "uk"}])
    yield call("addNotNullConstraint(List)", [{**columns, "nn_name": "nn"}])
    yield call("addDefaultConstraint(List)", [{**columns, "dc_name": "dc", "default_value": "1"}])
    yield call("addCheckConstraint(List)", [{**columns, "dc_name": "cc", "check_expression": "id > 0"}])
    yield call("getPrimaryKeys(PrimaryKeysRequest)", {"db_name": DATABASE, "tbl_name": "t"})
    foreign_of = {"foreign_db_name": DATABASE, "foreign_tbl_name": "p2"}
    yield call("getForeignKeys(ForeignKeysRequest)", foreign_of)
    for kind in ("Unique", "NotNull", "Default", "Check"):
        request = {"catName": "hive", "db_name": DATABASE, "tbl_name": "t"}
        yield call(f"get{kind}Constraints({kind}ConstraintsRequest)", request)
    request = {"catName": "hive", "dbName": DATABASE, "tblName": "t"}
    yield call("getAllTableConstraints(AllTableConstraintsRequest)", request)
    yield call("dropConstraint(String,String,String)", DATABASE, "p2", "fk")
    yield call("dropConstraint(String,String,String,String)", "hive", DATABASE, "t", "uk")
    yield call("dropConstraint(String,String,String)", DATABASE, "t", "nope")
    yield call("createTableWithConstraints(Table,List,List)", table("c"), [], [])
    yield call(
        "createTableWithConstraints(Table,List,List,List,List,List,List)", table("c"), *([] for _ in range(6))
    )


def functions() -> Iterator[Call]:
    yield call("createFunction(Function)", function("f", "a.B"))
    yield call("createFunction(Function)", function("f", "a.B"))
    yield call("createFunction(Function)", function("g", "a.B"))
    yield call("alterFunction(String,String,Function)", DATABASE, "f", function("f", "a.C"))
    yield call("alterFunction(String,String,String,Function)", "hive", DATABASE, "f", function("f", "a.D"))
    yield call("getFunction(String,String)", DATABASE, "f")
    yield call("getFunction(String,String)", DATABASE, "nope")
    yield call("getFunction(String,String,String)", "hive", DATABASE, "f")
    yield call("getFunctions(String,String)", DATABASE, "*")
    yield call("getFunctions(String,String,String)", "hive", DATABASE, "f")
    yield call("getAllFunctions()")
    yield call("dropFunction(String,String)", DATABASE, "f")
    yield call("dropFunction(String,String)", DATABASE, "f")
    yield call("dropFunction(String,String,String)", "hive", DATABASE, "g")


def users() -> Iterator[Call]:
    on_table = {"objectType": "TABLE", "dbName": DATABASE, "objectName": "t", "partValues": []}
    yield call("listRoleNames()")
    yield call("list_roles(String,PrincipalType)", "me", "USER")
    yield call("get_privilege_set(HiveObjectRef,String,List)", on_table, "me", [])
    yield call("list_privileges(String,PrincipalType,HiveObjectRef)", "me", "USER", on_table)
    yield call("get_principals_in_role(GetPrincipalsInRoleRequest)", {"roleName": "admin"})
    request = {"principal_name": "me", "principal_type": "USER"}
    yield call("get_role_grants_for_principal(GetRoleGrantsForPrincipalRequest)", request)
    yield call("create_role(Role)", {"roleName": "calls", "createTime": 0, "ownerName": "me"})
    yield call(
        "grant_role(String,String,PrincipalType,String,PrincipalType,boolean)",
        "calls",
        "me",
        "USER",
        "me",
        "USER",
        False,
    )
    yield call("revoke_role(String,String,PrincipalType,boolean)", "calls", "me", "USER", False)
    yield call("drop_role(String)", "calls")
    yield call("grant_privileges(PrivilegeBag)", {"privileges": []})
    yield call("revoke_privileges(PrivilegeBag,boolean)", {"privileges": []}, False)
    yield call("refresh_privileges(HiveObjectRef,String,PrivilegeBag)", on_table, "x", {"privileges": []})
    yield call("getDelegationToken(String,String)", "me", "me")
    yield call("renewDelegationToken(String)", "x")
    yield call("cancelDelegationToken(String)", "x")
    yield call("getTokenStrForm()")
    yield call("getAllTokenIdentifiers()")
    yield call("getMasterKeys()")


def transactions() -> Iterator[Call]:
    yield call(
        "createTable(Table)",
        table("ac", parameters={"transactional": "true", "transactional_properties": "insert_only"}),
    )
    yield call("getOpenTxns()")
    yield call("openTxn(String)", "me", keep="one")
    yield call("openTxn(String,TxnType)", "me", "READ_ONLY", keep="two")
    yield call("openTxns(String,int)", "me", 2)
    yield call("getValidTxns()")
    yield call("getValidTxns(long)", kept("one"))
    yield call("getValidTxns(long,List)", kept("one"), ["READ_ONLY"])
    yield call("showTxns()")
    yield call("allocateTableWriteId(long,String,String)", kept("one"), DATABASE, "ac")
    yield call("allocateTableWriteId(long,String,String,boolean)", kept("one"), DATABASE, "ac", False)
    yield call("openTxn(String)", "me", keep="three")
    yield call("allocateTableWriteIdsBatch(List,String,String)", [kept("three")], DATABASE, "ac")
    yield call("getMaxAllocatedWriteId(String,String)", DATABASE, "ac")
    yield call("getValidWriteIds(String)", f"{DATABASE}.ac")
    yield call("getValidWriteIds(String,Long)", f"{DATABASE}.ac", 1)
    yield call("getValidWriteIds(List,String)", [f"{DATABASE}.ac"], None)
    yield call("addWriteIdsToMinHistory(long,Map)", kept("one"), {f"{DATABASE}.ac": 1})
    yield call("addDynamicPartitions(long,String,String,List)", kept("one"), DATABASE, "p", ["d=a/n=2"])
    yield call(
        "addDynamicPartitions(long,String,String,List,DataOperationType)",
        kept("one"),
        DATABASE,
        "p",
        ["d=a/n=2"],
        "INSERT",
    )
    yield call("addDynamicPartitions(long,long,String,String,List)", kept("one"), 1, DATABASE, "ac", [])
    yield call(
        "addDynamicPartitions(long,long,String,String,List,DataOperationType)",
        kept("one"),
        1,
        DATABASE,
        "ac",
        [],
        "INSERT",
    )
    yield call("heartbeat(long,long)", kept("one"), 0)
    yield call("heartbeat(long,long)", 1_000_000_000, 0)
    yield call("heartbeatTxnRange(long,long)", kept("one"), kept("one"))
    written = {
        "txnId": kept("one"),
        "writeId": 1,
        "db": DATABASE,
        "table": "ac",
        "fileInfo": {"filesAdded": []},
    }
    yield call("addWriteNotificationLog(WriteNotificationLogRequest)", written)
    batch = {"catalog": "hive", "db": DATABASE, "table": "ac", "requestList": [written]}
    yield call("addWriteNotificationLogInBatch(WriteNotificationLogBatchRequest)", batch)
    yield call("getLatestTxnIdInConflict(long)", kept("one"))
    yield call("commitTxn(long)", kept("one"))
    yield call("commitTxn(long)", kept("one"))
    yield call("rollbackTxn(long)", kept("two"))
    yield call("rollbackTxn(long)", 1_000_000_000)
    yield call("commitTxn(CommitTxnRequest)", {"txnid": kept("three")})
    yield call("openTxn(String)", "me", keep="four")
    yield call("rollbackTxn(AbortTxnRequest)", {"txnid": kept("four")})
    yield call("openTxn(String)", "me", keep="five")
    yield call("abortTxns(List)", [kept("five")])
    yield call("openTxn(String)", "me", keep="six")
    yield call("abortTxns(AbortTxnsRequest)", {"txn_ids": [kept("six")]})
    yield call("openTxn(String)", "me", keep="seven")
    yield call("commitTxnWithKeyValue(long,long,String,String)", kept("seven"), -1, "_meta.k", "v")
    yield call("getAllWriteEventInfo(GetAllWriteEventInfoRequest)", {"txnId": 1_000_000_000})


def locks() -> Iterator[Call]:
    yield call("openTxn(String)", "me", keep="locking")
    request = {"component": [component("t", "SHARED_READ")], "user": "me", "hostname": "here"}
    yield call("lock(LockRequest)", {**request, "txnid": kept("locking")})
    request = {"component": [component("t", "EXCLUSIVE")], "user": "me", "hostname": "here"}
    yield call("lock(LockRequest)", request, keep="waiting")
    yield call("showLocks()")
    yield call("showLocks(ShowLocksRequest)", {"dbname": DATABASE, "tablename": "t"})
    yield call("checkLock(long)", 1_000_000_000)
    yield call("unlock(long)", 1_000_000_000)
    yield call("rollbackTxn(long)", kept("locking"))
    yield call("showLocks(ShowLocksRequest)", {"dbname": DATABASE, "tablename": "t"})


def events() -> Iterator[Call]:
    yield call("getCurrentNotificationEventId()")
    yield call(
        "getNotificationEventsCount(NotificationEventsCountRequest)",
        {"fromEventId": 1_000_000_000, "dbName": DATABASE},
    )
    yield call("getNextNotification(long,int,NotificationFilter)", 1_000_000_000, 5, None)
    request = {"lastEvent": 1_000_000_000, "maxEvents": 5}
    yield call(
        "getNextNotification(NotificationEventRequest,boolean,NotificationFilter)", request, True, None
    )
    inserted = {"insertData": {"filesAdded": ["/x"]}}
    event = {"successful": True, "data": inserted, "dbName": DATABASE, "tableName": "t"}
    yield call("fireListenerEvent(FireEventRequest)", event)
    yield call("insertTable(Table,boolean)", kept("t"), False)


def nothing_kept() -> Iterator[Call]:
    kept_by = (DATABASE, "ac", None, "MAJOR")
    yield call("showCompactions()")
    yield call("showCompactions(ShowCompactRequest)", {})
    yield call("compact(String,String,String,CompactionType)", *kept_by)
    yield call("compact(String,String,String,CompactionType,Map)", *kept_by, {})
    yield call("compact2(String,String,String,CompactionType,Map)", *kept_by, {})
    yield call("compact2(CompactionRequest)", {"dbname": DATABASE, "tablename": "ac", "type": "MAJOR"})
    yield call(
        "getLatestCommittedCompactionInfo(GetLatestCommittedCompactionInfoRequest)",
        {"dbname": DATABASE, "tablename": "ac"},
    )
    yield call("findNextCompact(String)", "me")
    yield call("findNextCompact(FindNextCompactRequest)", {"workerId": "me"})
    yield call("abortCompactions(AbortCompactionRequest)", {"compactionIds": []})
    yield call("getAllDataConnectorNames()")
    yield call("getDataConnector(String)", "nope")
    yield call("getResourcePlan(String,String)", "nope", None)
    yield call("getAllResourcePlans(String)", None)
    yield call("getActiveResourcePlan(String)", None)
    yield call("getTriggersForResourcePlan(String,String)", "nope", None)
    for method in ("getSchemaLatestVersion", "getSchemaAllVersions", "getISchema"):
        yield call(f"{method}(String,String,String)", "hive", DATABASE, "nope")
    yield call("getSchemaVersion(String,String,String,int)", "hive", DATABASE, "nope", 1)
    yield call("getSchemaByCols(FindSchemasByColsRqst)", {"colName": "nope"})
    yield call("getSerDe(String)", "nope")
    yield call("getRuntimeStats(int,int)", 10, 10)
    yield call("addRuntimeStat(RuntimeStat)", {"weight": 1, "payload": "x"})
    yield call("getScheduledQuery(ScheduledQueryKey)", {"scheduleName": "nope", "clusterNamespace": "x"})
    yield call("scheduledQueryPoll(ScheduledQueryPollRequest)", {"clusterNamespace": "x"})
    yield call("getReplicationMetrics(GetReplicationMetricsRequest)", {"policy": "nope"})
    yield call("addReplicationMetrics(ReplicationMetricList)", {"replicationMetricList": []})
    procedure = {"catName": "hive", "dbName": DATABASE, "procName": "nope"}
    yield call("getStoredProcedure(StoredProcedureRequest)", procedure)
    yield call("getAllStoredProcedures(ListStoredProcedureRequest)", {"catName": "hive", "dbName": DATABASE})
    package = {"catName": "hive", "dbName": DATABASE, "packageName": "nope"}
    yield call("findPackage(GetPackageRequest)", package)
    yield call("listPackages(ListPackageRequest)", {"catName": "hive", "dbName": DATABASE})
    yield call("recycleDirToCmPath(CmRecycleRequest)", {"dataPath": "file:/nowhere", "purge": True})
    yield call("listIndexes(String,String,short)", DATABASE, "t", -1)
    yield call("listIndexNames(String,String,short)", DATABASE, "t", -1)


def ends() -> Iterator[Call]:
    yield call("dropTable(String,boolean)", "nope", False)
    for name, method, more in (
        ("e1", "dropTable(String,String)", ()),
        ("e2", "dropTable(String,String,boolean,boolean)", (True, False)),
        ("e3", "dropTable(String,String,boolean,boolean,boolean)", (True, False, True)),
    ):
        yield call("createTable(Table)", table(name))
        yield call(method, DATABASE, name, *more)
        yield call(method, DATABASE, name, *more)
    for name, method, more in (
        ("e4", "dropTable(String,String,String)", ()),
        ("e5", "dropTable(String,String,String,boolean,boolean)", (True, False)),
        ("e6", "dropTable(String,String,String,boolean,boolean,boolean)", (True, False, True)),
    ):
        yield call("createTable(Table)", table(name))
        yield call(method, "hive", DATABASE, name, *more)
    yield call("createTable(Table)", table("e7"))
    yield call("getTable(String,String)", DATABASE, "e7", keep="e7")
    yield call("dropTable(Table,boolean,boolean,boolean)", kept("e7"), True, False, False)
    yield call("dropDatabase(String,boolean,boolean,boolean)", DATABASE, True, False, False)
    yield call("dropDatabase(String,boolean,boolean,boolean)", DATABASE, True, False, True)
    for name in ("d4", "d5", "d6", "d7"):  # 2.3.10 has no methods to drop these
        yield call("dropDatabase(String,boolean,boolean)", name, True, True)
    yield call("close()")
