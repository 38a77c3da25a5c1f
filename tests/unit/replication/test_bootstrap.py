"""The bootstrap copies the source's state at one position; resumed or repeated, it copies no file twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.exceptions import EventsExpiredError, InvalidInputError, ReplicationError
from airflow_provider.indexing import run_index, schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import PartitionSpec
from airflow_provider.metastore.model import Phase
from airflow_provider.replication import ReplicationPolicy, Replicator, replication_lag
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.table import HudiTable, snapshot
from tests.unit.concurrency.transactions.transactional_lake import SCHEMA, data_of, rows_of
from tests.unit.replication.pair import Pair, instants, rows
from tests.unit.replication.test_killed import KilledError
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10, 100: 5})
    made.lake.write("trips", {2: 20})
    return made


def test_open_transactions_are_carried_over(pair: Pair) -> None:
    aborted, committed = pair.lake.begin(), pair.lake.begin()
    pair.lake.write("trips", {200: 1}, committed)
    pair.lake.write("riders", {200: 1}, aborted)
    pair.replicate()
    pair.check_equal()
    assert set(pair.mapped()) == {aborted, committed}
    pair.lake.abort(aborted)
    pair.lake.commit(committed)
    assert pair.replicate().transactions == 1
    pair.check_equal()


def test_aborted_write_ids_stay_aborted(pair: Pair) -> None:
    for _ in range(2):
        txn = pair.lake.begin()
        pair.source.allocate_table_write_id(txn, "lake", "trips")
        pair.source.allocate_table_write_id(txn, "lake", "riders")
        pair.lake.abort(txn)
        pair.replicate(bootstrap=True)
        at_source, at_target = pair.write_ids("trips")
        assert (at_target.exceptions, at_target.aborted) == (at_source.exceptions, at_source.aborted)
    for name in ("riders", "trips"):
        pair.lake.write(name, {1: 1})
        pair.replicate()
        pair.check_equal()


def test_what_is_there_is_not_copied_again(pair: Pair) -> None:
    copies = 0

    def step(name: str) -> None:
        nonlocal copies
        copies += name.endswith(".parquet")
        if copies == 2:
            raise KilledError

    with pytest.raises(KilledError):
        pair.replicator(step).run()
    pair.replicate()
    pair.check_equal()
    copied = pair.replicator().status().bytes_copied
    assert pair.replicate(bootstrap=True).bytes_copied == 0
    assert pair.replicator().status().bytes_copied == copied
    pair.check_equal()


def test_what_a_killed_bootstrap_has_left_goes(pair: Pair) -> None:
    def step(name: str) -> None:
        if name == "create the table":
            raise KilledError

    with pytest.raises(KilledError):
        pair.replicator(step).run()
    table = pair.lake.tables["trips"]
    for fare in range(3):
        pair.lake.write("trips", {1: fare, 2: fare})
    assert clean(table, Retention(retained=1))
    pair.replicate()
    pair.check_equal()
    files = [
        {each.name for each in Path(of.location).rglob("*.parquet")} for of in (table, pair.copy_of("trips"))
    ]
    assert files[0] == files[1]


def test_a_position_that_has_fallen_out_of_the_log_says_so(pair: Pair) -> None:
    pair.replicate()
    pair.lake.write("trips", {1: 11})
    txn = pair.lake.begin()
    pair.lake.write("riders", {1: 1}, txn)
    pair.source.unregister_consumer("replication-dr")
    pair.source.purge_events(0.0)
    with pytest.raises(EventsExpiredError, match=r"'dr' is at event .*--bootstrap"):
        pair.replicate()
    assert replication_lag("dr", pair.source, pair.target).transactions is None
    done = pair.replicate(bootstrap=True)
    assert done.bootstrapped
    assert done.files_copied == 1
    pair.check_equal()
    pair.lake.commit(txn)
    pair.replicate()
    pair.check_equal()


def test_the_log_waits_for_the_replication(pair: Pair) -> None:
    pair.replicate()
    pair.lake.write("trips", {1: 11})
    assert pair.source.purge_events(0.0).held_back_by == ("replication-dr",)
    pair.replicate()
    assert pair.source.purge_events(0.0).held_back_by == ()


def test_what_the_source_has_lost_meanwhile_goes(pair: Pair) -> None:
    pair.source.create_function("lake", "f", "F")
    pair.source.add_partitions("lake", "trips", [PartitionSpec(("sf",), f"{pair.root}/source/trips/city=sf")])
    pair.replicate()
    pair.source.drop_function("lake", "f")
    pair.source.drop_partitions("lake", "trips", [("sf",)])
    pair.source.drop_table("lake", "riders")
    pair.replicate(bootstrap=True)
    pair.check_equal()
    assert pair.target.list_functions("lake_copy") == []


def test_a_database_that_is_added_to_the_policy_is_brought_over(pair: Pair) -> None:
    pair.replicate()
    pair.source.create_database("more", f"{pair.root}/source/more")
    pair.source.rename_table("lake", "riders", "more", "riders")
    databases = {"lake": "lake_copy", "more": "more_copy"}
    wider = ReplicationPolicy("dr", databases, pair.policy.locations)
    assert Replicator(wider, pair.source, pair.target).run().bootstrapped
    assert pair.target.list_tables("lake_copy") == ["trips"]
    assert pair.target.list_tables("more_copy") == ["riders"]
    assert pair.target.get_database("more_copy").location == f"{pair.root}/target/more"
    pair.source.drop_table("more", "riders")
    pair.source.drop_database("more")
    Replicator(wider, pair.source, pair.target).run()
    assert "more_copy" not in pair.target.list_databases()


def test_a_policy_that_cannot_work_is_refused(pair: Pair) -> None:
    pair.replicate()
    other = ReplicationPolicy("dr", {"lake": "elsewhere"}, pair.policy.locations)
    with pytest.raises(InvalidInputError, match="brings 'lake' to 'lake_copy'"):
        Replicator(other, pair.source, pair.target).run()
    twice = ReplicationPolicy("dr2", {"lake": "lake_copy"}, pair.policy.locations)
    with pytest.raises(InvalidInputError, match="target of 'dr' already"):
        Replicator(twice, pair.source, pair.target).run()
    with pytest.raises(InvalidInputError, match="inside"):
        ReplicationPolicy("p", {"a": "b"}, {"/srv": "/srv/copy"})
    with pytest.raises(InvalidInputError, match="two databases to one"):
        ReplicationPolicy("p", {"a": "x", "b": "X"}, {"/a": "/b"})
    nowhere = ReplicationPolicy("dr3", {"lake": "third"}, {"/srv": "/copy"})
    with pytest.raises(InvalidInputError, match="no location of it holds"):
        Replicator(nowhere, pair.source, pair.target).run()
    assert pair.replicator().status().phase is Phase.FOLLOWING


def test_what_somebody_else_has_at_the_targets_location_is_not_touched(pair: Pair) -> None:
    location = pair.root / "target" / "trips"
    mine = HudiTable.create(
        str(location), name="mine", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )
    ingest_arrow(mine, data_of({7: 7}), "upsert")
    (pair.root / "target" / "riders").mkdir()
    (pair.root / "target" / "riders" / "note").write_text("mine")
    with pytest.raises(ReplicationError, match="nothing was touched"):
        pair.replicate()
    assert rows_of(snapshot(mine).to_table()) == {7: 7}
    shutil.move(location, pair.root / "mine")
    pair.replicate()
    pair.check_equal()
    assert (pair.root / "target" / "riders" / "note").read_text() == "mine"


def test_the_target_may_be_an_object_store(pair: Pair) -> None:
    store = f"memory:/{pair.root}/target"
    policy = ReplicationPolicy("cloud", {"lake": "lake_cloud"}, {f"{pair.root}/source": store})
    schedule_index(pair.lake.tables["trips"], ["files", "record_index"])
    run_index(pair.lake.tables["trips"])
    early = pair.lake.begin()
    pair.lake.write("trips", {200: 1}, early)
    for _ in range(2):
        Replicator(policy, pair.source, pair.target).run()
        pair.lake.write("trips", {1: 11, 3: 3})
    pair.lake.commit(early)
    Replicator(policy, pair.source, pair.target).run()
    table = HudiTable.open(pair.target.get_table("lake_cloud", "trips").location)
    assert table.location == f"{store}/trips"
    assert rows(table, None) == rows(pair.lake.tables["trips"], None)
    assert instants(table) == instants(pair.lake.tables["trips"])
    assert_indexes_equal_a_rebuild(table)
