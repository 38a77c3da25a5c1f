"""Calls about transactions, write ids and locks, and their events in the notification log."""

from __future__ import annotations

from collections.abc import Callable

from hive_metastore import ttypes

from tests.engines.calls.asking import Asking, partition, table
from tests.engines.calls.objects import function, numbers

NEVER = 10**9
INSERT_ONLY = {"transactional": "true", "transactional_properties": "insert_only"}
UPDATE, DELETE, INSERT = (
    ttypes.DataOperationType.UPDATE,
    ttypes.DataOperationType.DELETE,
    ttypes.DataOperationType.INSERT,
)
LOCKS = {"SHARED_READ": 1, "SHARED_WRITE": 2, "EXCLUSIVE": 3, "EXCL_WRITE": 4}


def calls(hive: Asking) -> None:
    hive.client.create_table(table("ac", parameters=INSERT_ONLY))
    hive.client.create_table(table("t"))
    ids = _opened(hive)
    _write_ids(hive, ids)
    _ends(hive, ids)
    _lists(hive, ids)
    _locks(hive)
    _conflicts(hive)
    _events(hive)


def _open(hive: Asking, count: int = 1, **more: object) -> list[int]:
    request = ttypes.OpenTxnRequest(num_txns=count, user="u", hostname="h", **more)
    found: list[int] = hive.client.open_txns(request).txn_ids
    return found


def _opened(hive: Asking) -> list[int]:
    ids = _open(hive, 3)
    hive.told("open_txns 3", lambda: [one - ids[0] for one in ids])
    for count in (0, -1):
        hive.told(f"open_txns {count}", lambda count=count: _open(hive, count))
    many: list[int] = []
    hive.told("open_txns 1200", lambda: [many.extend(_open(hive, 1200)), len(many)][1])
    hive.client.abort_txns(ttypes.AbortTxnsRequest(many))
    return ids


def _allocate(hive: Asking, of: str, ids: list[int], **more: object) -> list[int]:
    request = ttypes.AllocateTableWriteIdsRequest(dbName="calls", tableName=of, txnIds=ids, **more)
    return [one.writeId for one in hive.client.allocate_table_write_ids(request).txnToWriteIds]


def _write_ids(hive: Asking, ids: list[int]) -> None:
    hive.told("allocate two", lambda: _allocate(hive, "ac", ids[:2]))
    hive.told("allocate again", lambda: _allocate(hive, "AC", ids[:2]))
    hive.told("allocate known ones and a new one", lambda: _allocate(hive, "ac", ids))
    hive.told("allocate the third", lambda: _allocate(hive, "ac", ids[2:]))
    hive.told("allocate on a table that is not there", lambda: _allocate(hive, "never", ids[:1]))
    hive.told("allocate for nobody", lambda: _allocate(hive, "ac", []))
    hive.told("allocate for a transaction that was never", lambda: _allocate(hive, "ac", [NEVER]))
    read_only = ttypes.TxnType.READ_ONLY
    hive.told("allocate for a reader", lambda: _allocate(hive, "ac", _open(hive, txn_type=read_only)))
    for name in ("calls.ac", "CALLS.AC", "calls.t", "calls.zzz", "zzz"):
        hive.told(f"get_valid_write_ids {name}", lambda name=name: _valid(hive, name))
    hive.told("get_valid_write_ids two", lambda: _valid(hive, "calls.ac", "calls.never"))
    hive.told("get_valid_write_ids none", lambda: _valid(hive))
    most = ttypes.MaxAllocatedTableWriteIdRequest(dbName="calls", tableName="ac")
    hive.ask("get_max_allocated_table_write_id", most, name="get_max_allocated_table_write_id")


def _valid(hive: Asking, *names: str, **more: object) -> list[object]:
    request = ttypes.GetValidWriteIdsRequest(fullTableNames=list(names), **more)
    found: list[object] = hive.client.get_valid_write_ids(request).tblValidWriteIds
    return found


def _ends(hive: Asking, ids: list[int]) -> None:
    def ended(name: str, method: str, request: object) -> None:
        hive.ask(method, request, name=name)

    commit, abort, beat = ttypes.CommitTxnRequest, ttypes.AbortTxnRequest, ttypes.HeartbeatRequest
    ended("commit", "commit_txn", commit(txnid=ids[0]))
    ended("commit twice", "commit_txn", commit(txnid=ids[0]))
    ended("abort a committed one", "abort_txn", abort(txnid=ids[0]))
    ended("abort", "abort_txn", abort(txnid=ids[1]))
    ended("abort twice", "abort_txn", abort(txnid=ids[1]))
    ended("commit an aborted one", "commit_txn", commit(txnid=ids[1]))
    ended("commit one that was never", "commit_txn", commit(txnid=NEVER))
    ended("abort one that was never", "abort_txn", abort(txnid=NEVER))
    for name, txn_id in (("committed", ids[0]), ("aborted", ids[1]), ("open", ids[2]), ("never", NEVER)):
        ended(f"heartbeat {name}", "heartbeat", beat(txnid=txn_id))

    def beat_range() -> object:
        found = hive.client.heartbeat_txn_range(ttypes.HeartbeatTxnRangeRequest(ids[0], ids[2]))
        return [sorted(one - ids[0] for one in part) for part in (found.aborted, found.nosuch)]

    hive.told("heartbeat_txn_range", beat_range)

    def with_a_value() -> object:
        [txn_id] = _open(hive)
        value = ttypes.CommitTxnKeyValue(tableId=hive.table("ac").id, key="_meta_a", value="7")
        hive.client.commit_txn(commit(txnid=txn_id, keyValue=value))
        return hive.table("ac").parameters.get("_meta_a")

    hive.told("commit_txn with a key and a value", with_a_value)


def _lists(hive: Asking, ids: list[int]) -> None:
    first, second, third = ids
    hive.told("get_valid_write_ids at the end", lambda: _valid(hive, "calls.ac"))
    for name, text in (
        ("of the first", f"{first}:{second}::"),
        ("all open", f"{third}:{first}:{first},{second},{third}:"),
        ("garbage", "garbage"),
    ):
        hive.told(
            f"get_valid_write_ids validTxnList {name}",
            lambda text=text: _valid(hive, "calls.ac", validTxnList=text),
        )
    hive.told("get_valid_write_ids writeId", lambda: _valid(hive, "calls.ac", writeId=2))
    for text in (
        "calls.ac:5:9223372036854775807::",
        "x",
        "",
        "calls.ac:5",
        "calls.ac:5:3:3:4",
        "calls.ac:a:b:c:d",
    ):
        hive.told(
            f"get_table_req validWriteIdList {text}",
            lambda text=text: hive.table("ac", validWriteIdList=text, id=-1).tableName,
        )

    def infos() -> object:
        found = hive.client.get_open_txns_info().open_txns
        return [(one.state, one.user, one.hostname, one.agentInfo) for one in found if one.id == third]

    hive.told("get_open_txns_info", infos)
    hive.told(
        "get_open_txns", lambda: [one - first for one in hive.client.get_open_txns().open_txns if one in ids]
    )
    hive.told(
        "get_latest_txnid_in_conflict", lambda: hive.client.get_latest_txnid_in_conflict(third) <= third
    )
    written = ttypes.WriteNotificationLogRequest(
        txnId=third, writeId=3, db="calls", table="ac", fileInfo=ttypes.InsertEventRequestData(filesAdded=[])
    )
    hive.ask("add_write_notification_log", written, name="add_write_notification_log")
    hive.ask(
        "get_all_write_event_info",
        ttypes.GetAllWriteEventInfoRequest(txnId=third),
        name="get_all_write_event_info",
    )


def _lock(
    hive: Asking,
    kind: int,
    of: str | None,
    operation: int = ttypes.DataOperationType.NO_TXN,
    txn_id: int | None = None,
    part: str | None = None,
    *,
    transactional: bool = False,
    **more: object,
) -> object:
    level = (
        ttypes.LockLevel.DB if of is None else ttypes.LockLevel.PARTITION if part else ttypes.LockLevel.TABLE
    )
    component = ttypes.LockComponent(
        type=kind,
        level=level,
        dbname="calls",
        tablename=of,
        partitionname=part,
        operationType=operation,
        isTransactional=transactional,
    )
    return hive.client.lock(
        ttypes.LockRequest(component=[component], txnid=txn_id, user="u", hostname="h", **more)
    )


def _locks(hive: Asking) -> None:
    client = hive.client

    def pair(first: tuple[object, ...], second: tuple[object, ...]) -> Callable[[], list[int]]:
        def ask() -> list[int]:
            held, asked = _lock(hive, *first), _lock(hive, *second)  # type: ignore[arg-type]
            states = [held.state, asked.state]  # type: ignore[attr-defined]
            client.unlock(ttypes.UnlockRequest(held.lockid))  # type: ignore[attr-defined]
            later = client.check_lock(ttypes.CheckLockRequest(lockid=asked.lockid))  # type: ignore[attr-defined]
            client.unlock(ttypes.UnlockRequest(asked.lockid))  # type: ignore[attr-defined]
            return [*states, later.state]

        return ask

    for held, one in LOCKS.items():
        for asked, other in LOCKS.items():
            hive.told(f"lock {held}, then {asked}", pair((one, "lk"), (other, "lk")))
    no_txn = ttypes.DataOperationType.NO_TXN
    hive.told("lock database, then table", pair((3, None), (1, "lk")))
    hive.told("lock partition, then table", pair((3, "lk", no_txn, None, "p=1"), (3, "lk")))
    hive.told("lock two partitions", pair((3, "lk", no_txn, None, "p=1"), (3, "lk", no_txn, None, "p=2")))
    hive.ask("unlock", ttypes.UnlockRequest(NEVER), name="unlock never")
    hive.ask("check_lock", ttypes.CheckLockRequest(lockid=NEVER), name="check_lock never")
    hive.ask("heartbeat", ttypes.HeartbeatRequest(lockid=NEVER), name="heartbeat lock never")
    hive.ask("lock", ttypes.LockRequest(component=[], user="u", hostname="h"), name="lock nothing")
    hive.told("lock of a transaction that was never", lambda: _lock(hive, 2, "ac", UPDATE, NEVER))

    def of_a_transaction() -> object:
        [txn_id] = _open(hive)
        found = _lock(hive, 2, "ac", UPDATE, txn_id, transactional=True)
        try:
            client.unlock(ttypes.UnlockRequest(found.lockid))  # type: ignore[attr-defined]
        finally:
            client.abort_txn(ttypes.AbortTxnRequest(txnid=txn_id))

    hive.told("unlock of an open transaction", of_a_transaction)

    def shown() -> object:
        held = _lock(hive, 1, "sl")
        found = client.show_locks(ttypes.ShowLocksRequest(dbname="calls", tablename="sl")).locks
        client.unlock(ttypes.UnlockRequest(held.lockid))  # type: ignore[attr-defined]
        return [(one.dbname, one.tablename, one.state, one.type, one.user, one.agentInfo) for one in found]

    hive.told("show_locks", shown)

    def without_waiting(txn_id: int | None) -> object:
        held = _lock(hive, 3, "zero")
        asked = _lock(hive, 1, "zero", txn_id=txn_id, zeroWaitReadEnabled=True)
        client.unlock(ttypes.UnlockRequest(held.lockid))  # type: ignore[attr-defined]
        if txn_id is None:
            client.unlock(ttypes.UnlockRequest(asked.lockid))  # type: ignore[attr-defined]
        else:
            client.abort_txn(ttypes.AbortTxnRequest(txnid=txn_id))
        return asked.state  # type: ignore[attr-defined]

    hive.told("lock zeroWaitReadEnabled", lambda: without_waiting(None))
    hive.told("lock zeroWaitReadEnabled of a transaction", lambda: without_waiting(_open(hive)[0]))


def _conflicts(hive: Asking) -> None:
    def both(first: int, second: int, exclusive: bool, *parts: str | None) -> str:
        one, other = _open(hive, 2)
        first_part, second_part = parts or (None, None)
        _lock(hive, 2, "ac", first, one, first_part, transactional=True)
        for txn_id in (one, other):
            _allocate(hive, "ac", [txn_id])
        hive.client.commit_txn(ttypes.CommitTxnRequest(txnid=one, exclWriteEnabled=exclusive))
        _lock(hive, 2, "ac", second, other, second_part, transactional=True)
        try:
            hive.client.commit_txn(ttypes.CommitTxnRequest(txnid=other, exclWriteEnabled=exclusive))
        except ttypes.TxnAbortedException:
            return "the second is aborted"
        return "both commit"

    for name, arguments in (
        ("update, update", (UPDATE, UPDATE, False)),
        ("update, delete", (UPDATE, DELETE, False)),
        ("insert, update", (INSERT, UPDATE, False)),
        ("update, update, exclusive", (UPDATE, UPDATE, True)),
        ("update, update of other partitions", (UPDATE, UPDATE, False, "p=1", "p=2")),
    ):
        hive.told(f"two transactions: {name}", lambda arguments=arguments: both(*arguments))

    def dynamic() -> None:
        [txn_id] = _open(hive)
        _lock(hive, 2, "ac", UPDATE, txn_id, transactional=True)
        request = ttypes.AddDynamicPartitions(
            txnid=txn_id,
            writeid=1,
            dbname="calls",
            tablename="ac",
            partitionnames=["p=1"],
            operationType=INSERT,
        )
        hive.client.add_dynamic_partitions(request)
        hive.client.commit_txn(ttypes.CommitTxnRequest(txnid=txn_id))

    hive.told("add_dynamic_partitions", dynamic)


def _events(hive: Asking) -> None:
    client = hive.client

    def last() -> int:
        found: int = client.get_current_notificationEventId().eventId
        return found

    def event(name: str, change: Callable[[], object]) -> None:
        def found() -> object:
            before = last()
            change()
            request = ttypes.NotificationEventRequest(lastEvent=before, maxEvents=50)
            events = client.get_next_notification(request).events
            assert [one.eventId for one in events] == list(range(before + 1, before + 1 + len(events)))
            return [[one.eventType, one.dbName, one.tableName, one.catName] for one in events]

        hive.told(f"events of {name}", found)

    def altered(name: str, change: Callable[[object], object]) -> None:
        found = hive.table(name)
        change(found)
        client.alter_table("calls", name, found)

    def written(of: str) -> None:
        [txn_id] = _open(hive)
        _allocate(hive, of, [txn_id])
        client.commit_txn(ttypes.CommitTxnRequest(txnid=txn_id))

    event("create_database", lambda: client.create_database(ttypes.Database(name="calls2")))
    event("create_table", lambda: client.create_table(table("n1", (("d", "string"),), external=True)))
    event("create_table insert only", lambda: client.create_table(table("n2", parameters=INSERT_ONLY)))
    event("add_partitions", lambda: client.add_partitions([partition("n1", "1"), partition("n1", "2")]))
    event(
        "alter_partition",
        lambda: client.alter_partition("calls", "n1", client.get_partition("calls", "n1", ["1"])),
    )
    event("drop_partition", lambda: client.drop_partition("calls", "n1", ["1"], True))
    event("alter_table", lambda: altered("n1", lambda one: one.parameters.update(q="1")))  # type: ignore[attr-defined]
    event("rename table", lambda: altered("n1", lambda one: setattr(one, "tableName", "n3")))
    event("drop_table", lambda: client.drop_table("calls", "n3", True))
    event("open, abort", lambda: client.abort_txn(ttypes.AbortTxnRequest(txnid=_open(hive)[0])))
    event("open 3, abort", lambda: client.abort_txns(ttypes.AbortTxnsRequest(_open(hive, 3))))
    event("open, write id, commit", lambda: written("n2"))
    inserted = ttypes.InsertEventRequestData(filesAdded=["/a"], filesAddedChecksum=[""])
    fired = ttypes.FireEventRequest(successful=True, dbName="calls", tableName="n2")
    fired.data = ttypes.FireEventRequestData(insertData=inserted)
    event("fire_listener_event", lambda: client.fire_listener_event(fired))
    event(
        "create_function, drop_function",
        lambda: (client.create_function(function("f1")), client.drop_function("calls", "f1")),
    )
    event("statistics", lambda: client.update_table_column_statistics(numbers("t", 9)))
    event("drop_database cascade", lambda: client.drop_database("calls2", True, True))

    asked = ttypes.NotificationEventRequest(lastEvent=NEVER, maxEvents=5)
    hive.ask("get_next_notification", asked, name="get_next_notification of the future")
    asked = ttypes.NotificationEventRequest(lastEvent=last() - 3, maxEvents=2)
    hive.told("get_next_notification at most 2", lambda: len(client.get_next_notification(asked).events))
