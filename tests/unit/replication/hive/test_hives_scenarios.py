"""The scenarios of Hive's ``TestReplicationScenariosAcidTables`` (Hive 4), one by one.

``OURS`` names our test of each scenario, ``LEFT_OUT`` gives the reason if there is none. Hive's dump is a
folder between both sides. In this package the target's position replaces it, so tests of Hive's
acknowledgement files correspond to the resumption of a pass.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from airflow_provider.exceptions import ReplicationError
from airflow_provider.metastore.model import PROVIDER
from airflow_provider.replication import ReplicationPolicy, Replicator
from airflow_provider.table import HudiTable
from tests.unit.concurrency.transactions.transactional_lake import SCHEMA
from tests.unit.replication.pair import Pair

_RESUMED = "test_bootstrap.test_what_is_there_is_not_copied_again"
_KILLED = "test_killed.test_killed_at_any_step"
_OPEN = "test_bootstrap.test_open_transactions_are_carried_over"
_HERE = "hive.test_hives_scenarios"

OURS = {
    "testAcidTablesBootstrap": "test_events.test_what_is_written_arrives_under_the_same_ids",
    "testAcidTablesBootstrapWithConcurrentDropTable": f"{_HERE}.test_a_table_is_dropped_during_the_bootstrap",
    "testAcidTablesBootstrapWithConcurrentWrites": f"{_HERE}.test_a_write_during_the_bootstrap_comes_later",
    "testAcidTablesBootstrapWithOpenTxnsAbortDisabled": _OPEN,
    "testAcidTablesBootstrapWithOpenTxnsDiffDb": f"{_HERE}.test_transactions_of_other_databases_stay_there",
    "testAcidTablesBootstrapWithOpenTxnsPrimaryAndSecondaryDb": (
        f"{_HERE}.test_transactions_of_other_databases_stay_there"
    ),
    "testAcidTablesBootstrapWithOpenTxnsTimeout": "test_bootstrap.test_aborted_write_ids_stay_aborted",
    "testAcidTablesBootstrapWithOpenTxnsWaitingForLock": _OPEN,
    "testAcidTablesCreateTableIncremental": f"{_HERE}.test_tables_that_are_created_later_come_whole",
    "testAcidBootstrapReplLoadRetryAfterFailure": _RESUMED,
    "testAbortTxnEvent": "test_events.test_a_transaction_that_was_aborted_costs_no_byte",
    "testCheckPointingBootstrapDuringIncrementalRegularCopy": _KILLED,
    "testCheckPointingDataDumpFailure": _RESUMED,
    "testCheckPointingDataDumpFailureBootstrapDuringIncremental": _KILLED,
    "testCheckPointingDataDumpFailureORCTableRegularCopy": _RESUMED,
    "testCheckPointingDataDumpFailureRegularCopy": _RESUMED,
    "testCheckPointingMetadataDumpFailure": "test_bootstrap.test_what_a_killed_bootstrap_has_left_goes",
    "testCheckPointingWithNewTablesAdded": f"{_HERE}.test_tables_that_are_created_later_come_whole",
    "testCheckPointingWithSourceTableDataInserted": (
        "test_bootstrap.test_what_a_killed_bootstrap_has_left_goes"
    ),
    "testCheckPointingWithSourceTableDeleted": "test_bootstrap.test_what_the_source_has_lost_meanwhile_goes",
    "testCheckpointingIncrWithTableDrop": "test_any_history.test_any_history",
    "testCheckpointingOnFirstEventDump": _KILLED,
    "testDumpAcidTableWithPartitionDirMissing": (
        "tables.test_table_services.test_a_file_that_is_missing_is_named_and_never_passed_over"
    ),
    "testDumpAcidTableWithTableDirMissing": f"{_HERE}.test_a_table_whose_folder_is_gone_is_named",
    "testIncrementalDumpCheckpointing": _KILLED,
    "testIncrementalResumeDump": _KILLED,
    "testManagedTableLazyCopy": "tables.test_plain_tables.test_its_files_arrive_with_its_events",
    "testMultiDBTxn": f"{_HERE}.test_a_transaction_over_two_databases_arrives_whole",
    "testNotificationFromLoadMetadataAck": "test_killed.test_doubled_at_any_step",
    "testORCTableRegularCopyWithCopyOnTarget": (
        "tables.test_plain_tables.test_its_files_arrive_with_its_events"
    ),
    "testOpenTxnEvent": "test_events.test_transactions_are_mapped_and_end_as_at_the_source",
    "testReplOperationsNotCapturedInNotificationLog": (
        f"{_HERE}.test_a_pass_without_news_leaves_no_event_on_either_side"
    ),
    "testReplTargetOfReplication": "test_events.test_nobody_else_writes_into_the_target",
    "testTableWithPartitionsInBatch": "test_events.test_changes_of_the_catalog_arrive",
}

LEFT_OUT = {
    "testAcidTablesBootstrapWithMetadataAlone": "data that never changes is not left out: there is no option",
    "testCheckPointingDataDumpFailureORCTableDistcpCopy": "files are not copied by Hadoop's distcp",
    "testHdfsMaxDirItemsLimitDuringIncremental": "no dump folder stands between the sides and could fill up",
    "testIncrementalResumeDumpFromInvalidEventDumpFile": "the position is a row of the target's database",
    "testMaterializedViewOnAcidTableReplication": "materialized views are not kept by the metastore",
    "testORCTableDistcpCopyWithCopyOnTarget": "files are not copied by Hadoop's distcp",
    "testTxnEventNonAcid": "each metastore has transactions",
}


@pytest.mark.parametrize("scenario", OURS)
def test_there_is_one_for_each_scenario(scenario: str) -> None:
    module, _, name = OURS[scenario].rpartition(".")
    assert callable(getattr(importlib.import_module(f"tests.unit.replication.{module}"), name))
    assert scenario not in LEFT_OUT


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10})
    return made


def test_a_write_during_the_bootstrap_comes_later(pair: Pair) -> None:
    def step(name: str) -> None:
        if name == "bootstrap lake.trips":
            pair.lake.write("trips", {2: 20})

    pair.replicator(step).run(upto=1)
    assert pair.rows_of_target("trips") == {1: 10}
    pair.replicate()
    pair.check_equal()


def test_a_table_is_dropped_during_the_bootstrap(pair: Pair) -> None:
    dropped = pair.source.get_table("lake", "trips")

    def step(name: str) -> None:
        if name == "bootstrap lake.trips":
            pair.lake.write("trips", {2: 20})
            pair.source.drop_table("lake", "trips")
            shutil.rmtree(dropped.location)

    pair.replicator(step).run()
    del pair.lake.tables["trips"]
    pair.replicate()
    assert pair.target.list_tables("lake_copy") == ["riders"]
    pair.lake.create("trips")
    pair.lake.write("trips", {100: 1})
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {100: 1}


def test_transactions_of_other_databases_stay_there(pair: Pair) -> None:
    pair.source.create_database("other")
    table = pair.source.get_table("lake", "riders")
    pair.source.create_table("other", "t", location=f"{table.location}_other", schema=table.schema)
    elsewhere, here = pair.lake.begin(), pair.lake.begin()
    pair.source.allocate_table_write_id(elsewhere, "other", "t")
    pair.source.allocate_table_write_id(here, "lake", "riders")
    pair.replicate()
    at_source, at_target = pair.write_ids("trips")
    assert (at_target.high_watermark, at_target.exceptions) == (at_source.high_watermark, ())
    assert pair.write_ids("riders")[1].exceptions == (1,)
    assert "other" not in pair.target.list_databases()
    pair.source.abort_txn(elsewhere)
    pair.lake.abort(here)
    pair.replicate()
    pair.check_equal()
    assert pair.mapped() == {}


def test_tables_that_are_created_later_come_whole(pair: Pair) -> None:
    pair.replicate()
    for name in ("one", "two"):
        pair.lake.create(name)
        pair.lake.write(name, {1: 1, 100: 2})
    pair.lake.write("trips", {1: 11})
    pair.replicate()
    pair.check_equal()
    assert pair.target.list_tables("lake_copy") == ["one", "riders", "trips", "two"]


def test_a_transaction_over_two_databases_arrives_whole(pair: Pair) -> None:
    pair.source.create_database("more", f"{pair.root}/source/more")
    table = HudiTable.create(
        f"{pair.root}/source/more/t", name="t", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    known = pair.source.get_table("lake", "trips")
    pair.source.create_table(
        "more", "t", location=table.location, schema=known.schema, partition_keys=known.partition_keys
    )
    databases = {"lake": "lake_copy", "more": "more_copy"}
    policy = ReplicationPolicy("dr", databases, pair.policy.locations)
    Replicator(policy, pair.source, pair.target).run()
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 11, 2: 20}, txn)
    write_id = pair.source.allocate_table_write_id(txn, "more", "t")
    Replicator(policy, pair.source, pair.target).run()
    places = [("lake_copy", "trips"), ("more_copy", "t")]

    def seen() -> list[bool]:
        lists = [pair.target.valid_write_id_list(*place) for place in places]
        return [lists[0].is_valid(2), lists[1].is_valid(write_id)]

    assert seen() == [False, False]
    pair.source.commit_txn(txn)
    both: list[list[bool]] = []
    Replicator(policy, pair.source, pair.target, step=lambda _: both.append(seen())).run()
    assert [False, True] not in both
    assert [True, False] not in both
    assert seen() == [True, True]


def test_a_table_whose_folder_is_gone_is_named(pair: Pair) -> None:
    pair.source.alter_table("lake", "trips", parameters={PROVIDER: "hudi"})
    shutil.move(pair.lake.tables["trips"].location, pair.root / "away")
    with pytest.raises(ReplicationError, match=r"source/trips is no Hudi table"):
        pair.replicate()
    shutil.move(pair.root / "away", pair.lake.tables["trips"].location)
    pair.replicate()
    pair.check_equal()


def test_a_pass_without_news_leaves_no_event_on_either_side(pair: Pair) -> None:
    pair.replicate()
    before = pair.source.current_event_id(), pair.target.current_event_id()
    assert pair.replicate().events == 0
    assert (pair.source.current_event_id(), pair.target.current_event_id()) == before
