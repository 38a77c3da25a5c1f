"""Hive's Java client 2.3.10 and 4.0.1: each method, at a real Hive of its version and at ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase

import pytest

from tests.engines.calls.java import calls
from tests.engines.conftest import Server
from tests.engines.java_client import VERSIONS, Told, ask
from tests.processes.hive_metastore import hive_metastore

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
    "repl*": "of Hive's own replication, see tests/processes/test_replication.py",
    "seed*": "of Hive's own replication, see tests/processes/test_replication.py",
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


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def told(version: str, ours: Server, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return ask(version, ours.port, calls(), tmp_path_factory.mktemp("java"))


def test_each_method_is_called_or_listed(told: Told) -> None:
    called = {one.method for one in calls()}
    left = told.methods - called
    assert len(called & told.methods) > 130
    unlisted = [one for one in left if not any(fnmatchcase(one, place) for place in NOT_CALLED)]
    assert not unlisted
    assert [one["mistake"] for one in told.answers if "mistake" in one] == []


def test_what_hive_answers_ours_answers(
    told: Told, version: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("java")
    if version == "2.3.10":
        with hive_metastore(tmp_path_factory.mktemp("hive2")) as port:
            hive = ask(version, port, calls(), folder)
    else:
        hive = ask(version, request.getfixturevalue("hive4").port, calls(), folder)
    assert not _unlisted(version, hive, told)


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
