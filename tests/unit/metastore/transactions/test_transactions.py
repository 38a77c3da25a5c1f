"""Transactions, write ids, snapshots and recovery, by Hive's rules."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_provider.metastore import (
    AnyMetastore,
    Column,
    EventType,
    Insertion,
    PartitionSpec,
    RecoveredTxn,
    TableWriteInfo,
    TxnState,
    TxnType,
    ValidTxnList,
)
from airflow_provider.metastore.model.hive_json import decode_partition, decode_write_id

Silence = Callable[[int, float], None]
NO_OPEN = 9223372036854775807


def open_with_write_id(metastore: AnyMetastore) -> tuple[int, int]:
    txn_id = metastore.open_txn("me", "here")
    return txn_id, metastore.allocate_table_write_id(txn_id, "lake", "flights")


def test_an_opened_transaction_as_it_was_given(metastore: AnyMetastore) -> None:
    started = time.time()
    assert metastore.open_txn("me", "here", agent="dag.task", commit_on_recovery=False) == 1
    assert metastore.open_txn("you", "there") == 2
    first, second = metastore.get_txn(1), metastore.get_txn(2)
    assert (first.state, first.user, first.host, first.agent) == (TxnState.OPEN, "me", "here", "dag.task")
    assert (first.commit_on_recovery, second.commit_on_recovery, first.event_id) == (False, True, None)
    assert abs(first.opened_at - started) < 300
    assert abs(first.heartbeat_at - started) < 300
    event = metastore.next_events(2)[0]
    assert (event.event_type, event.database, event.table) == (EventType.OPEN_TXN, None, None)
    assert (event.message["txnIds"], event.message["fromTxnId"], event.message["toTxnId"]) == ([1], 1, 1)
    assert abs(event.message["timestamp"] - started) < 300


def test_commit_is_idempotent_and_names_its_event(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    event_id = metastore.commit_txn(txn_id)
    metastore.open_txn("you", "there")
    assert metastore.commit_txn(txn_id) == event_id
    info = metastore.get_txn(txn_id)
    assert (info.state, info.event_id) == (TxnState.COMMITTED, event_id)
    events = metastore.next_events(event_id - 1)
    assert [event.event_type for event in events] == [EventType.COMMIT_TXN, EventType.OPEN_TXN]
    assert (events[0].message["txnid"], events[0].message["writeIds"]) == (txn_id, None)


def test_abort_is_idempotent_and_names_the_databases(metastore: AnyMetastore) -> None:
    txn_id, _ = open_with_write_id(metastore)
    event_id = metastore.abort_txn(txn_id)
    assert metastore.abort_txn(txn_id) == event_id == metastore.current_event_id()
    event = metastore.next_events(event_id - 1)[0]
    assert event.event_type == EventType.ABORT_TXN
    assert (event.message["txnid"], event.message["dbsUpdated"]) == (txn_id, ["lake"])


def test_an_ended_transaction_answers_as_hives(metastore: AnyMetastore) -> None:
    committed, aborted = metastore.open_txn("me", "here"), metastore.open_txn("me", "here")
    metastore.commit_txn(committed)
    metastore.abort_txn(aborted)
    before = metastore.current_event_id()
    uses: list[Callable[[int], object]] = [
        metastore.heartbeat_txn,
        lambda txn_id: metastore.allocate_table_write_id(txn_id, "lake", "flights"),
        lambda txn_id: metastore.record_write(txn_id, "lake", "flights", "20250101000000000"),
    ]
    for use in [*uses, metastore.commit_txn]:
        with pytest.raises(TransactionAbortedError, match=f"^Transaction txnid:{aborted} already aborted$"):
            use(aborted)
    for use in [*uses, metastore.abort_txn]:
        with pytest.raises(
            NoSuchTransactionError, match=f"^Transaction txnid:{committed} is already committed.$"
        ):
            use(committed)
    for use in [
        *uses,
        metastore.commit_txn,
        metastore.abort_txn,
        metastore.get_txn,
        metastore.valid_txn_list,
    ]:
        with pytest.raises(NoSuchTransactionError, match=r"^No such transaction txnid:99$"):
            use(99)
    assert metastore.current_event_id() == before


def test_one_write_id_for_each_transaction_and_table(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "trains", location="/t", schema=[Column("id", "bigint")])
    first, second = metastore.open_txn("me", "here"), metastore.open_txn("me", "here")
    before = metastore.current_event_id()
    assert metastore.allocate_table_write_id(second, "lake", "flights") == 1
    assert metastore.allocate_table_write_id(first, "lake", "flights") == 2
    assert metastore.allocate_table_write_id(first, "lake", "trains") == 1
    assert metastore.allocate_table_write_id(second, "LAKE", "Flights") == 1
    events = metastore.next_events(before)
    assert [
        (event.event_type, event.table, event.message["txnIdList"], event.message["writeIdList"])
        for event in events
    ] == [
        (EventType.ALLOC_WRITE_ID, "flights", [second], [1]),
        (EventType.ALLOC_WRITE_ID, "flights", [first], [2]),
        (EventType.ALLOC_WRITE_ID, "trains", [first], [1]),
    ]
    assert (events[0].message["dbName"], events[0].message["tableName"]) == ("lake", "flights")


def test_a_table_that_does_not_exist_has_no_write_ids(metastore: AnyMetastore) -> None:
    txn_id = metastore.open_txn("me", "here")
    with pytest.raises(NoSuchObjectError, match=r"lake\.trains"):
        metastore.allocate_table_write_id(txn_id, "lake", "trains")
    with pytest.raises(NoSuchObjectError, match=r"lake\.trains"):
        metastore.valid_write_id_list("lake", "trains")
    with pytest.raises(NoSuchObjectError, match=r"lake\.trains"):
        metastore.record_write(txn_id, "lake", "trains", "20250101000000000")


def test_snapshots_of_transactions(metastore: AnyMetastore) -> None:
    assert str(metastore.valid_txn_list()) == f"0:{NO_OPEN}::"
    for _ in range(6):
        metastore.open_txn("me", "here")
    assert str(metastore.valid_txn_list()) == "6:1:1-6:"
    metastore.commit_txn(1)
    metastore.abort_txn(2)
    metastore.commit_txn(4)
    assert str(metastore.valid_txn_list()) == "6:3:3,5,6:2"
    # A transaction sees itself, and nothing later (TxnCommonUtils.createValidReadTxnList).
    assert str(metastore.valid_txn_list(5)) == "5:3:3:2"
    assert str(metastore.valid_txn_list(2)) == f"2:{NO_OPEN}::"


def test_write_ids_come_in_another_order_than_transactions(metastore: AnyMetastore) -> None:
    """Hive's TestTxnHandler.testValidWriteIdListSnapshot."""
    committed, _ = open_with_write_id(metastore)
    metastore.commit_txn(committed)
    early = metastore.open_txn("me", "here")
    late, write_id = open_with_write_id(metastore)
    assert write_id == 2
    reader = metastore.open_txn("me", "here")
    assert metastore.allocate_table_write_id(early, "lake", "flights") == 3
    snapshot = metastore.valid_txn_list(reader)
    assert str(metastore.valid_write_id_list("lake", "flights", snapshot)) == "lake.flights:3:2:2,3:"
    assert metastore.allocate_table_write_id(reader, "lake", "flights") == 4
    assert str(metastore.valid_write_id_list("lake", "flights", snapshot)) == "lake.flights:4:2:2,3:"
    metastore.commit_txn(late)
    metastore.abort_txn(early)
    assert str(metastore.valid_write_id_list("lake", "flights", snapshot)) == "lake.flights:4:2:2,3:"
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:4:4:4:3"


def test_without_a_valid_id_the_lowest_invalid_one_is_the_watermark(metastore: AnyMetastore) -> None:
    """GetValidWriteIdsForTableFunction.java:116-130."""
    first, _ = open_with_write_id(metastore)
    open_with_write_id(metastore)
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:1:1:1:"
    metastore.abort_txn(first)
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:1:2::1"
    # Written only by transactions that the snapshot does not know.
    assert str(metastore.valid_write_id_list("lake", "flights", ValidTxnList(0))) == "lake.flights:1:1:1:"


def test_a_heartbeat_keeps_a_transaction_alive(metastore: AnyMetastore, silence: Silence) -> None:
    kept, lost = metastore.open_txn("me", "here"), metastore.open_txn("me", "here")
    silence(kept, 400)
    silence(lost, 400)
    metastore.heartbeat_txn(kept)
    assert metastore.abort_timed_out(300) == [lost]
    assert metastore.get_txn(kept).state == TxnState.OPEN
    assert metastore.abort_timed_out(300) == []
    event = metastore.next_events(metastore.current_event_id() - 1)[0]
    assert (event.event_type, event.message["txnid"]) == (EventType.ABORT_TXN, lost)
    with pytest.raises(TransactionAbortedError):
        metastore.heartbeat_txn(lost)


@pytest.mark.parametrize("instant", ["20250101000000000", None])
def test_a_transaction_with_a_write_is_left_to_recovery(
    metastore: AnyMetastore, silence: Silence, instant: str | None
) -> None:
    txn_id, _ = open_with_write_id(metastore)
    if instant is not None:
        metastore.record_write(txn_id, "lake", "flights", instant)
    silence(txn_id, 400)
    assert metastore.abort_timed_out(300) == []
    assert metastore.get_txn(txn_id).state == TxnState.OPEN


def test_the_writes_of_a_transaction(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "trains", location="/lake/trains", schema=[Column("id", "bigint")])
    txn_id, write_id = open_with_write_id(metastore)
    metastore.record_write(txn_id, "lake", "flights", "20250102000000000")
    metastore.record_write(txn_id, "lake", "flights", "20250101000000000")
    metastore.record_write(txn_id, "Lake", "Flights", "20250101000000000")
    assert metastore.allocate_table_write_id(txn_id, "lake", "trains") == 1
    assert metastore.writes_of(txn_id) == [
        TableWriteInfo(txn_id, "lake", "flights", "/lake/flights", write_id, "20250101000000000"),
        TableWriteInfo(txn_id, "lake", "flights", "/lake/flights", write_id, "20250102000000000"),
        TableWriteInfo(txn_id, "lake", "trains", "/lake/trains", 1, None),
    ]
    assert metastore.writes_of(txn_id + 1) == []
    with pytest.raises(InvalidInputError, match="recorded by its instant"):
        metastore.record_write(txn_id, "lake", "flights", "")


@pytest.mark.parametrize(
    ("completed", "committed"),
    [
        ({"20250101000000000", "20250102000000000"}, True),
        ({"20250101000000000"}, False),
        (set(), False),
    ],
)
def test_recovery_ends_a_transaction_as_its_timelines_say(
    metastore: AnyMetastore, silence: Silence, completed: set[str], committed: bool
) -> None:
    txn_id, _ = open_with_write_id(metastore)
    live, _ = open_with_write_id(metastore)
    for instant in ("20250101000000000", "20250102000000000"):
        metastore.record_write(txn_id, "lake", "flights", instant)
    silence(txn_id, 400)
    asked: list[str | None] = []

    def is_completed(write: TableWriteInfo) -> bool:
        asked.append(write.instant)
        return write.instant in completed

    recovered = metastore.recover_timed_out(300, is_completed)
    # Recovery asks about every instant, also after a False, because the called function rolls back.
    assert asked == ["20250101000000000", "20250102000000000"]
    assert recovered == [RecoveredTxn(txn_id, committed, metastore.current_event_id())]
    state = TxnState.COMMITTED if committed else TxnState.ABORTED
    assert (metastore.get_txn(txn_id).state, metastore.get_txn(live).state) == (state, TxnState.OPEN)
    assert metastore.recover_timed_out(300, is_completed) == []


def test_recovery_asks_about_a_write_id_without_an_instant(metastore: AnyMetastore, silence: Silence) -> None:
    """The writer died after its commit on the timeline, before it recorded that in the metastore."""
    txn_id, write_id = open_with_write_id(metastore)
    silence(txn_id, 400)

    def is_completed(write: TableWriteInfo) -> bool:
        assert write == TableWriteInfo(txn_id, "lake", "flights", "/lake/flights", write_id, None)
        metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", "1"), "/p")])
        return True

    assert [one.committed for one in metastore.recover_timed_out(300, is_completed)] == [True]
    assert metastore.valid_write_id_list("lake", "flights").is_valid(write_id)


def test_recovery_aborts_transactions_without_writes_or_without_a_commit_request(
    metastore: AnyMetastore, silence: Silence
) -> None:
    nothing = metastore.open_txn("me", "here")
    whole_dag = metastore.open_txn("me", "here", commit_on_recovery=False)
    metastore.record_write(whole_dag, "lake", "flights", "20250101000000000")
    for txn_id in (nothing, whole_dag):
        silence(txn_id, 400)
    recovered = metastore.recover_timed_out(300, lambda write: True)
    assert [(one.txn_id, one.committed) for one in recovered] == [(nothing, False), (whole_dag, False)]


def test_recovery_commits_a_whole_dag_whose_commit_was_requested(
    metastore: AnyMetastore, silence: Silence
) -> None:
    txn_id = metastore.open_txn("me", "here", commit_on_recovery=False)
    metastore.record_write(txn_id, "lake", "flights", "20250101000000000")
    metastore.request_commit(txn_id)
    silence(txn_id, 400)
    assert [one.committed for one in metastore.recover_timed_out(300, lambda write: True)] == [True]
    metastore.request_commit(txn_id)
    aborted = metastore.open_txn("me", "here")
    metastore.abort_txn(aborted)
    with pytest.raises(TransactionAbortedError):
        metastore.request_commit(aborted)


def test_a_timeout_of_its_own_counts_in_place_of_the_usual_one(
    metastore: AnyMetastore, silence: Silence
) -> None:
    patient = metastore.open_txn("me", "here", timeout_seconds=3600)
    hasty = metastore.open_txn("me", "here", timeout_seconds=10)
    for txn_id in (patient, hasty):
        silence(txn_id, 400)
    assert metastore.abort_timed_out(500) == [hasty]
    metastore.heartbeat_txn(patient)
    silence(patient, 3500)
    assert metastore.abort_timed_out(500) == []
    silence(patient, 200)
    assert metastore.abort_timed_out(500) == [patient]


@pytest.mark.parametrize("timeout", [0, -1.5])
def test_a_timeout_has_to_be_above_zero(metastore: AnyMetastore, timeout: float) -> None:
    with pytest.raises(InvalidInputError, match="above 0 seconds"):
        metastore.open_txn("me", "here", timeout_seconds=timeout)
    assert metastore.valid_txn_list().high_watermark == 0


def test_recovery_gives_way_to_an_owner_that_wakes_up(metastore: AnyMetastore, silence: Silence) -> None:
    beating, committing = (open_with_write_id(metastore)[0] for _ in range(2))
    for txn_id in (beating, committing):
        silence(txn_id, 400)

    def wake_up(write: TableWriteInfo) -> bool:
        (metastore.heartbeat_txn if write.txn_id == beating else metastore.commit_txn)(write.txn_id)
        return False

    assert metastore.recover_timed_out(300, wake_up) == []
    assert metastore.get_txn(beating).state == TxnState.OPEN
    assert metastore.get_txn(committing).state == TxnState.COMMITTED


def test_new_partitions_and_the_commit_are_one_change(metastore: AnyMetastore) -> None:
    txn_id, _ = open_with_write_id(metastore)
    new = [PartitionSpec(("2013", "1"), "/p")]
    before = metastore.current_event_id()
    with pytest.raises(NoSuchObjectError):
        metastore.commit_txn(txn_id, new_partitions={("lake", "flights"): new, ("lake", "trains"): new})
    assert metastore.current_event_id() == before
    assert metastore.get_partitions("lake", "flights") == []
    assert metastore.get_txn(txn_id).state == TxnState.OPEN
    event_id = metastore.commit_txn(txn_id, new_partitions={("lake", "flights"): new})
    assert [event.event_type for event in metastore.next_events(before)] == [
        EventType.ADD_PARTITION,
        EventType.COMMIT_TXN,
    ]
    assert event_id == before + 2
    aborted = metastore.open_txn("me", "here")
    metastore.abort_txn(aborted)
    with pytest.raises(TransactionAbortedError):
        metastore.commit_txn(aborted, new_partitions={("lake", "flights"): [PartitionSpec(("9", "9"), "/p")]})
    assert len(metastore.get_partitions("lake", "flights")) == 1


def test_insert_events_come_with_the_commit_and_once(metastore: AnyMetastore) -> None:
    txn_id, write_id = open_with_write_id(metastore)
    january = PartitionSpec(("2013", "1"), "/p")
    place = ("lake", "flights")
    told = {
        "new_partitions": {place: [january]},
        "insertions": {place: [Insertion(["/p/a.parquet", "/p/b.parquet"], january.values, replace=True)]},
    }
    before = metastore.current_event_id()
    for nowhere in (
        {place: [Insertion(["/q/a.parquet"], ("2013", "2"))]},
        {("lake", "trains"): [Insertion(["/t/a.parquet"])]},
    ):
        with pytest.raises(NoSuchObjectError):
            metastore.commit_txn(txn_id, insertions=nowhere)
    assert metastore.current_event_id() == before
    event_id = metastore.commit_txn(txn_id, **told)
    added, inserted, committed = metastore.next_events(before)
    assert [added.event_type, committed.event_type] == [EventType.ADD_PARTITION, EventType.COMMIT_TXN]
    assert (inserted.event_type, inserted.database, inserted.table) == (EventType.INSERT, *place)
    assert inserted.message["files"] == ["/p/a.parquet", "/p/b.parquet"]
    assert inserted.message["replace"] == "true"
    assert decode_write_id(inserted.message["tableObjJson"]) == write_id
    assert decode_partition(inserted.message["ptnObjJson"]).values == january.values
    assert metastore.commit_txn(txn_id, **told) == event_id == metastore.current_event_id()


def test_recovery_committed_first_and_the_owner_adds_its_partitions_later(metastore: AnyMetastore) -> None:
    txn_id, _ = open_with_write_id(metastore)
    event_id = metastore.commit_txn(txn_id)
    new = {("lake", "flights"): [PartitionSpec(("2013", "1"), "/p")]}
    assert metastore.commit_txn(txn_id, new_partitions=new) == event_id
    assert len(metastore.get_partitions("lake", "flights")) == 1


def test_a_transaction_that_only_reads_is_in_no_snapshot(metastore: AnyMetastore) -> None:
    reading = metastore.open_txn("me", "here", txn_type=TxnType.READ_ONLY)
    assert metastore.get_txn(reading).txn_type == TxnType.READ_ONLY
    assert str(metastore.valid_txn_list()) == f"{reading}:{NO_OPEN}::"
    with pytest.raises(InvalidInputError, match=r"Write ID allocation failed on lake\.flights"):
        metastore.allocate_table_write_id(reading, "lake", "flights")
    with pytest.raises(InvalidInputError, match="was opened to read only"):
        metastore.alter_table("lake", "flights", owner="ops", txn_id=reading)
    metastore.heartbeat_txn(reading)
    assert metastore.commit_txn(reading) == metastore.commit_txn(reading) == 2
    assert metastore.abort_txn(metastore.open_txn("me", "here", txn_type=TxnType.READ_ONLY)) == 2
    assert metastore.next_events(2) == []
    assert str(metastore.valid_txn_list()) == f"2:{NO_OPEN}::"


def test_a_transaction_that_only_reads_times_out(metastore: AnyMetastore, silence: Silence) -> None:
    reading = metastore.open_txn("me", "here", txn_type=TxnType.READ_ONLY)
    silence(reading, 301)
    assert metastore.abort_timed_out(300) == [reading]


def test_write_ids_go_on_above_those_in_use(metastore: AnyMetastore) -> None:
    assert metastore.seed_write_id("lake", "flights", 57) == 57
    assert str(metastore.valid_write_id_list("lake", "flights")) == f"lake.flights:57:{NO_OPEN}::"
    txn_id = metastore.open_txn("me", "here")
    assert metastore.allocate_table_write_id(txn_id, "lake", "flights") == 58
    assert metastore.seed_write_id("lake", "flights", 12) == 58
    assert str(metastore.valid_write_id_list("lake", "flights")) == "lake.flights:58:58:58:"
    with pytest.raises(InvalidInputError, match="cannot go on after -1"):
        metastore.seed_write_id("lake", "flights", -1)
    with pytest.raises(NoSuchObjectError):
        metastore.seed_write_id("lake", "trains", 1)


def test_a_renamed_table_takes_no_write_ids_from_a_dropped_one(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "trains", location="/t", schema=[])
    metastore.seed_write_id("lake", "trains", 9)
    metastore.drop_table("lake", "trains")
    metastore.rename_table("lake", "flights", "lake", "trains")
    txn_id = metastore.open_txn("me", "here")
    assert metastore.allocate_table_write_id(txn_id, "lake", "trains") == 1


def test_one_snapshot_tells_all_that_a_reader_has_to_say(metastore: AnyMetastore) -> None:
    metastore.create_table("lake", "trains", location="/t", schema=[])
    txn_id = metastore.open_txn("me", "here")
    metastore.allocate_table_write_id(txn_id, "lake", "flights")
    snapshot = metastore.read_snapshot([("lake", "flights"), ("LAKE", "Trains")], txn_id)
    assert snapshot.valid_txns == metastore.valid_txn_list(txn_id)
    assert {name: str(one.write_ids) for name, one in snapshot.tables.items()} == {
        "lake.flights": f"lake.flights:1:{NO_OPEN}::",
        "lake.trains": f"lake.trains:0:{NO_OPEN}::",
    }
    assert snapshot.tables["lake.trains"].table_id == metastore.get_table("lake", "trains").id
    assert snapshot.catalog_event_id == 1
    with pytest.raises(NoSuchObjectError):
        metastore.read_snapshot([("lake", "ships")])
