"""Events are applied one by one, in order: transactions, write ids, data at the commit, and the catalog."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.exceptions import InvalidInputError, ReplicationTargetError
from airflow_provider.metastore import Column, EventType, PartitionSpec, TxnState, TxnType
from airflow_provider.table import HudiTable
from tests.unit.concurrency.transactions.transactional_lake import SCHEMA
from tests.unit.replication.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.replicate()
    return made


def test_what_is_written_arrives_under_the_same_ids(pair: Pair) -> None:
    pair.lake.write("trips", {1: 10, 100: 5})
    pair.lake.write("trips", {1: 11, 2: 20})
    pair.lake.write("riders", {7: 70})
    done = pair.replicate()
    assert done.transactions == 3
    assert done.bytes_copied > 0
    pair.check_equal()


def test_a_transaction_that_was_aborted_costs_no_byte(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, txn)
    pair.lake.write("riders", {1: 10}, txn)
    opened = pair.replicate()
    pair.lake.abort(txn)
    aborted = pair.replicate()
    assert (opened.bytes_copied, aborted.bytes_copied) == (0, 0)
    assert list(Path(pair.copy_of("trips").location).rglob("*.parquet")) == []
    pair.check_equal()


def test_data_comes_with_the_commit_and_not_before(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, txn)
    assert pair.replicate().bytes_copied == 0
    pair.lake.write("trips", {100: 20})
    assert pair.replicate().bytes_copied > 0
    pair.check_equal()
    pair.lake.commit(txn)
    assert pair.replicate().bytes_copied > 0
    pair.check_equal()


def test_a_transaction_that_began_first_and_is_committed_last_keeps_its_times(pair: Pair) -> None:
    early = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, early)
    pair.lake.write("trips", {100: 20})
    pair.replicate()
    pair.lake.write("trips", {101: 21})
    pair.lake.commit(early)
    pair.replicate()
    pair.check_equal()
    pair.lake.write("trips", {1: 12, 100: 22})
    pair.replicate()
    pair.check_equal()


def test_a_file_on_its_way_is_not_seen_before_its_commit(pair: Pair) -> None:
    """The file is older than the target's timeline, so a reader could mistake it for an archived commit's."""
    early = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, early)
    pair.lake.write("trips", {100: 20})
    pair.replicate()
    pair.lake.commit(early)
    seen = []

    def look(step: str) -> None:
        if step.startswith("replay"):
            seen.append(pair.rows_of_target("trips"))

    pair.replicator(look).run()
    assert seen == [{100: 20}]
    assert pair.rows_of_target("trips") == {1: 10, 100: 20}


def test_transactions_are_mapped_and_end_as_at_the_source(pair: Pair) -> None:
    pair.target.open_txn("somebody", "here")  # the target has transactions of its own
    txn = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, txn)
    aborted = pair.lake.begin()
    pair.replicate()
    mapped = pair.mapped()
    assert set(mapped) == {txn, aborted}
    assert mapped[txn] != txn
    assert pair.target.get_txn(mapped[txn]).txn_type is TxnType.REPL_CREATED
    pair.lake.commit(txn)
    pair.lake.abort(aborted)
    pair.replicate()
    assert pair.mapped() == {}
    states = [pair.target.get_txn(mapped[one]).state for one in (txn, aborted)]
    assert states == [TxnState.COMMITTED, TxnState.ABORTED]


def test_nobody_else_writes_into_the_target(pair: Pair) -> None:
    pair.lake.write("trips", {1: 10})
    pair.replicate()
    txn = pair.target.open_txn("somebody", "here")
    column = [Column("id", "bigint")]
    refused = [
        lambda: pair.target.allocate_table_write_id(txn, "lake_copy", "trips"),
        lambda: pair.target.create_table("lake_copy", "more", location="/more", schema=column),
        lambda: pair.target.alter_table("lake_copy", "trips", parameters={}),
        lambda: pair.target.rename_table("lake_copy", "trips", "lake", "trips"),
        lambda: pair.target.drop_table("lake_copy", "trips"),
        lambda: pair.target.add_partitions("lake_copy", "trips", [PartitionSpec(("x",), "/x")]),
        lambda: pair.target.drop_partitions("lake_copy", "trips", [("sf",)]),
        lambda: pair.target.create_function("lake_copy", "f", "F"),
        lambda: pair.target.alter_database("lake_copy", parameters={}),
        lambda: pair.target.drop_database("lake_copy", cascade=True),
    ]
    for change in refused:
        with pytest.raises(ReplicationTargetError, match=r"repl\.target\.for"):
            change()
    pair.target.create_table("lake", "mine", location="/mine", schema=column)
    pair.check_equal()


def test_a_transaction_of_the_replicator_is_nobody_elses_to_end(pair: Pair) -> None:
    txn = pair.lake.begin()
    pair.replicate()
    mapped = pair.mapped()[txn]
    assert pair.target.timed_out(0.0) == []
    for end in (pair.target.commit_txn, pair.target.abort_txn):
        with pytest.raises(ReplicationTargetError, match="'dr'"):
            end(mapped)


def test_changes_of_the_catalog_arrive(pair: Pair) -> None:
    source = pair.source
    source.alter_database("lake", comment="trips and riders", parameters={"owner": "me"})
    source.alter_table("lake", "trips", parameters={"a": "b"})
    source.add_partitions(
        "lake",
        "trips",
        [
            PartitionSpec(("sf",), f"{pair.root}/source/trips/city=sf"),
            PartitionSpec((None,), f"{pair.root}/source/trips/x"),
        ],
    )
    source.alter_partition("lake", "trips", ("sf",), parameters={"c": "d"})
    source.rename_partition("lake", "trips", ("sf",), ("la",))
    source.drop_partitions("lake", "trips", [(None,)])
    source.create_function("lake", "f", "F", resources=("s3://jars/f.jar",))
    source.create_function("lake", "g", "G")
    source.drop_function("lake", "g")
    source.rename_table("lake", "riders", "lake", "drivers")
    pair.replicate()
    pair.check_equal()
    assert pair.target.get_database("lake_copy").comment == "trips and riders"
    assert pair.target.get_partition("lake_copy", "trips", ("la",)).parameters == {"c": "d"}
    assert pair.target.get_partition("lake_copy", "trips", ("la",)).location.startswith(f"{pair.root}/target")
    assert pair.target.list_functions("lake_copy") == ["f"]
    source.drop_table("lake", "drivers")
    pair.replicate()
    assert pair.target.list_tables("lake_copy") == ["trips"]


def test_a_table_that_leaves_the_database_is_dropped_and_one_that_enters_comes_whole(pair: Pair) -> None:
    pair.lake.write("trips", {1: 10})
    pair.replicate()
    pair.source.create_database("attic")
    pair.source.rename_table("lake", "trips", "attic", "trips")
    pair.replicate()
    assert pair.target.list_tables("lake_copy") == ["riders"]
    pair.source.rename_table("attic", "trips", "lake", "trips")
    pair.lake.write("trips", {2: 20})
    while pair.replicate().events:
        pass
    pair.check_equal()


def test_a_table_that_held_data_when_it_was_registered_comes_whole(pair: Pair) -> None:
    pair.lake.write("trips", {1: 10})
    pair.lake.write("trips", {100: 10})
    table = pair.source.get_table("lake", "trips")
    pair.source.drop_table("lake", "trips")
    pair.source.create_table(
        "lake", "trips", location=table.location, schema=table.schema, partition_keys=table.partition_keys
    )
    pair.replicate()
    pair.check_equal()


def test_insert_events_name_the_files_of_the_target(pair: Pair) -> None:
    folder = f"{pair.root}/source/riders"
    pair.source.alter_table("lake", "riders", parameters={})
    pair.source.add_partitions("lake", "riders", [PartitionSpec(("sf",), f"{folder}/city=sf")])
    pair.source.fire_insert_event("lake", "riders", [f"{folder}/city=sf/1.parquet"], values=("sf",))
    before = pair.target.current_event_id()
    pair.replicate()
    [event] = pair.target.next_events(before, event_types=[EventType.INSERT])
    assert event.message["files"] == [f"{pair.root}/target/riders/city=sf/1.parquet"]


@pytest.mark.parametrize("key", [["id"], ["fare"]])
def test_a_table_that_was_dropped_and_created_anew_is_the_new_one(pair: Pair, key: list[str]) -> None:
    pair.lake.write("trips", {1: 10, 100: 5})
    pair.replicate()
    dropped = pair.source.get_table("lake", "trips")
    pair.source.drop_table("lake", "trips")
    shutil.rmtree(dropped.location)
    pair.lake.tables["trips"] = HudiTable.create(
        dropped.location, name="trips", schema=SCHEMA, record_key=key, partition_by=["city"]
    )
    pair.source.create_table(
        "lake",
        "trips",
        location=dropped.location,
        schema=dropped.schema,
        partition_keys=dropped.partition_keys,
    )
    pair.lake.write("trips", {2: 20})
    pair.replicate()
    assert pair.rows_of_target("trips") == {2: 20}
    pair.check_equal()


@pytest.mark.parametrize("missing", [0, 1], ids=["the first", "one between"])
def test_no_event_is_left_out(pair: Pair, missing: int) -> None:
    replicator, target = pair.replicator(), pair.target.replication_target()
    position = replicator.status().event_id or 0
    for _ in range(2):
        pair.lake.abort(pair.lake.begin())
    events = pair.source.next_events(position)
    events = [each for each in events if each.event_id != position + 1 + missing]
    with pytest.raises(InvalidInputError, match=rf"event {position}: events .* cannot follow"):
        target.apply_events(replicator.scope, events)
    assert replicator.status().event_id == position
    pair.replicate()
    pair.check_equal()
