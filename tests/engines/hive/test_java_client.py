"""Hive's Java client 2.3.10 and 4.0.1: each method, at a real Hive of its version and at ours.

The same calls succeed, the others fail by the same exceptions, and the answers have the same fields, except
for the differences that this module lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.engines.calls.compared import Difference, differences
from tests.engines.calls.java import calls
from tests.engines.hive.java_client import VERSIONS, Told, ask
from tests.processes.metastore.hive_metastore import hive_metastore
from tests.processes.metastore.metastore_service import metastore_service

_WAREHOUSE = re.compile(r"(file:/*)?/[^ \"]*/warehouse\b")
_TIME = re.compile(r"^1[789]\d{8}$")

# Methods that are not called, each with the reason; docs/metastore-methods.md has most in "What is left out".
NOT_CALLED: Mapping[str, str] = {
    "*Token(String*)": "no delegation tokens are issued",
    "*MasterKey(*)": "no delegation tokens are issued",
    "*Catalog(*)": "there is one catalog",
    "*FileMetadata*": "of Hive's HBase metastore, which is gone",
    "*PartitionForEvent(*": "left out",
    "*PartitionMarkedForEvent(*": "left out",
    "*ISchema(*": "left out: schema registries",
    "*SchemaVersion*": "left out: schema registries",
    "addSerDe(*": "left out",
    "*ResourcePlan(*": "left out: resource plans",
    "*WM*": "left out: resource plans",
    "createOrDropTriggerToPoolMapping*": "left out: resource plans",
    "*DataConnector(*": "left out",
    "*StoredProcedure(*": "left out",
    "*Package(*": "left out",
    "scheduledQuery*": "left out",
    "*CompactionInfoStruct*": "left out: compactors",
    "*CompactionMetricsData*": "left out: compactors",
    "setHadoopJobid*": "left out: compactors",
    "submitForCleanup*": "left out: compactors",
    "*MaterializationRebuild(*": "left out: materialized views",
    "getMaterializationInvalidationInfo*": "left out: materialized views",
    "updateCreationMetadata*": "left out: materialized views",
    "?etProperties(*": "left out",
    "alter_index(*": "Hive 3 and later have no indexes",
    "*Index(*": "Hive 3 and later have no indexes",
    "repl*": "of Hive's own replication, see tests/processes/replicas/test_replication.py",
    "seed*": "of Hive's own replication, see tests/processes/replicas/test_replication.py",
}
# Calls that one of the two refuses and the other does not, or by another exception, each with the reason.
DIFFERENT: Mapping[str, str] = {
    "setMetaConf(*": "settings are not kept",
    "getConfigValue(*": "settings are not kept",
    "listPartitionsByExpr(*": "the text of a filter is an expression; an empty one is every partition",
    "listPartitionNames(PartitionsByExprRequest)": "as above",
    "dropPartitions(*": "an empty expression drops no partition",
    "dropConstraint(*": "Hive answers by an internal error",
    "*_role(*": "no roles and grants are kept",
    "*_privileges(*": "no roles and grants are kept",
    "compact(*": "Hive ACID tables are not compacted here",
    "abortCompactions(*": "Hive answers by an internal error",
    "getSchemaByCols(*": "there are no schemas",
    "commitTxnWithKeyValue(*": "both refuse: Hive by an internal error",
    "2.3.10 getValidTxns(*": "`open_txns` is a set in Hive 2.3, and a list since Hive 3",
    "2.3.10 listIndex*": "Hive 3 and later have no indexes",
    "2.3.10 createTable(Table) #5": "Hive 2.3 knows no table with insert_only",
    "2.3.10 lock(*": "in Hive 2.3 locks of a transaction need a known operation",
    "*addDynamicPartitions(*": "Hive 3 added a field, and both fail inside without a lock",
}


# Fields of answers that are not the same, by the method and the path of the field; each with the reason.
FIELDS: Mapping[str, str] = {
    "2.3.10 * *.catName": "Hive 2.3 has no catalogs",
    "2.3.10 * *.catalogName": "Hive 2.3 has no catalogs",
    "* *.temporary": "a Hive leaves out what says nothing",
    "* *.storedAsSubDirectories": "a Hive leaves out what says nothing",
    "* *.skewedInfo": "a Hive leaves out what says nothing",
    "* *.groupPrivileges": "a Hive leaves out what says nothing",
    "* *.heartbeatCount": "a Hive leaves out what says nothing",
    "* *.writeId": "a Hive leaves out -1",
    "getTable* *.id": "ids count all tables that the server has had",
    "* *.lockIdInternal": "the lock has one part",
    "* *.parameters.numFilesErasureCoded": "the metastore reads no files",
    "showLocks(* *.blockedBy?xtId": "it is not told which lock one waits for",
    "showLocks(* *.blockedBy?ntId": "it is not told which lock one waits for",
    "showLocks(* *.txnid": "ids count all transactions that the server has had",
    "fireListenerEvent(* *.eventIds*": "events count all that the server has done",
    "findNextCompact(* *": "Hive ACID tables are not compacted here",
    "getMetastoreDbUuid() *": "each metastore has its own",
    "getServerVersion() *": "the protocol is that of 4.1",
    "getDatabase(* *.createTime": "it is not kept",
    "getCatalog(* *.createTime": "it is not kept",
    "getDatabase(* *.ownerName": "a Hive names its own user where the client names none",
    "getTranslateTableDryrun(* *": "the table as it would be registered",
    "getTables(* *": "in the order of names; Hive has none",
    "getAllTables(* *": "in the order of names; Hive has none",
    "listTableNamesByFilter(* *": "in the order of names; Hive has none",
    "getTablesExt(* *": "Hive 4.0.1 finds no table by most patterns",
    "getTableMeta(* *.ownerType": "it is not told",
    "getPartitionsWithSpecs(* *": "fields that a projection leaves out are absent",
    "4.0.1 listPartitionNames(String,String,short) #4 *": "an empty expression drops no partition",
    "getOpenTxns() *": "ids count all transactions that the server has had",
    "allocateTableWriteIdsBatch(* *.txnId": "ids count all transactions that the server has had",
    "getMetaConf(*": "settings are not kept",
    "getTableMeta(* *.tableName": "in the order of names; Hive has none",
    "listPartitionSpecs* *": "one list with its location, where Hive may send each partition whole",
    "exchange_partition(* *": "the partition that has moved; Hive answers an empty one",
    "* *.parameters.numFiles": "the metastore reads no files",
    "* *.parameters.totalSize": "the metastore reads no files",
    "* *.parameters.transient_lastDdlTime": "a truncation of a partition is a change of it",
    "getFunction(* *.createTime": "it is not told",
    "getAllFunctions(* *.createTime": "it is not told",
    "openTxn* *": "ids count all transactions that the server has had",
    "showTxns() *": "ids count all transactions that the server has had",
    "*lock* *.lockid": "ids count all locks that the server has had",
    "getCurrentNotificationEventId() *": "events count all that the server has done",
    "2.3.10 lock(* *": "in Hive 2.3 locks of a transaction need a known operation, and fewer are held",
    "2.3.10 showLocks(* *": "as above",
    "compact2(* *": "Hive ACID tables are not compacted here",
}


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def told(version: str, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The answers of our server; each client gets a new one, because a client leaves locks behind."""
    folder = tmp_path_factory.mktemp("ours")
    options = ("--warehouse", f"file:{folder}/warehouse", "--manage-folders")
    with metastore_service(folder, f"sqlite:///{folder}/metastore.db", *options) as service:
        return ask(version, service.port, calls(), tmp_path_factory.mktemp("java"))


def test_each_method_is_called_or_listed(told: Told) -> None:
    called = {one.method for one in calls()}
    left = told.methods - called
    assert len(called & told.methods) > 130
    unlisted = [one for one in left if not any(fnmatchcase(one, place) for place in NOT_CALLED)]
    assert not unlisted
    assert [one["mistake"] for one in told.answers if "mistake" in one] == []


@pytest.fixture(scope="module")
def hive(version: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The answers of a real Hive of the client's version."""
    folder = tmp_path_factory.mktemp("java")
    if version == "2.3.10":
        with hive_metastore(tmp_path_factory.mktemp("hive2")) as port:
            return ask(version, port, calls(), folder)
    return ask(version, request.getfixturevalue("hive4").port, calls(), folder)


def test_what_hive_answers_ours_answers(told: Told, hive: Told, version: str) -> None:
    assert not _unlisted(version, hive, told)


def test_the_answers_have_the_same_fields(told: Told, hive: Told, version: str) -> None:
    found = [str(one) for one in different_fields(hive, told) if not _is_listed(f"{version} {one.where}")]
    assert not found, "\n".join(found)


def different_fields(hive: Told, ours: Told) -> list[Difference]:
    """The differences of calls that both servers answer."""
    count: Counter[str] = Counter()
    found: list[Difference] = []
    for one, theirs, answer in zip(calls(), hive.answers, ours.answers, strict=True):
        count[one.method] += 1
        name = f"{one.method} #{count[one.method]}"
        if "error" not in theirs and "error" not in answer:
            found += differences({name: _placeless(theirs)}, {name: _placeless(answer)})
    return found


def _is_listed(where: str) -> bool:
    escaped = where.replace("[", "<").replace("]", ">")
    return any(
        fnmatchcase(escaped, place if place.startswith(VERSIONS) else f"* {place}") for place in FIELDS
    )


def _placeless(answer: Any) -> Any:
    """An answer without times and without the place of the server's warehouse."""
    if isinstance(answer, dict):
        return {name: _placeless(value) for name, value in answer.items() if value is not None}
    if isinstance(answer, list):
        if all(isinstance(one, dict) and "tableName" in one and "values" not in one for one in answer):
            answer = sorted(answer, key=lambda one: str(one["tableName"]))  # a Hive has no order of tables
        return [_placeless(value) for value in answer]
    if isinstance(answer, int | float) and answer > 1_000_000_000:
        return "TIME"
    if isinstance(answer, str):
        return _TIME.sub("TIME", _WAREHOUSE.sub("WAREHOUSE", answer))
    return answer


def _unlisted(version: str, hive: Told, ours: Told) -> list[str]:
    """The calls that only one server answers, or that they refuse differently, without a listed reason."""
    count: Counter[str] = Counter()
    found = []
    for one, theirs, answer in zip(calls(), hive.answers, ours.answers, strict=True):
        count[one.method] += 1
        name = f"{one.method} #{count[one.method]}" if count[one.method] > 1 else one.method
        listed = any(fnmatchcase(n, p) for p in DIFFERENT for n in (name, f"{version} {name}"))
        if theirs.get("error") != answer.get("error") and not listed:
            found.append(f"{name}: Hive {theirs.get('error')}, ours {answer.get('error')}: {answer}")
    return found
