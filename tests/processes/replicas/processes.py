"""Replicas, writers and readers, each a process. This module imports little, so that they start fast."""

from __future__ import annotations

import hashlib
import pickle
import random
import signal
from collections.abc import Iterable, MutableSequence, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Protocol

import tenacity

from airflow_provider.exceptions import MetastoreUnavailableError, NoSuchObjectError, NoSuchTransactionError
from airflow_provider.metastore import (
    AnyMetastore,
    PartitionInfo,
    PartitionSpec,
    ReaderSession,
    TableSnapshot,
    open_cached_store,
    open_metastore,
)
from airflow_provider.metastore.cache.cached_store import CachedStore
from airflow_provider.metastore.model.reader import Reader
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from tests.processes.forks import FORKS
from tests.processes.servers import free_port

DATABASE = "lake"
# So many tables that most of them are in no open transaction: memory may answer only for those.
TABLES = [f"t{number}" for number in range(24)]
PARTITIONS = [str(number) for number in range(8)]
TAG = "tag"
READS = 24
"""Reads with one snapshot: the first ones fill the memory that answers most of the others."""


class Replica:
    """A replica in a process, on a port that it keeps when it is killed and started again.

    :param url: the database's URL.
    :param name: the replica's name.
    :param is_sabotaged: whether the replica neither follows the log nor checks whether its copies are stale.
    """

    def __init__(self, url: str, name: str, *, is_sabotaged: bool = False) -> None:
        self._options = ServiceOptions(url, port=free_port(), replica=name)
        self._is_sabotaged = is_sabotaged
        self.name = name
        self.uri = f"thrift://127.0.0.1:{self._options.port}"
        # The value has no lock, because a killed process would keep it.
        self._counts = FORKS.Array("q", 2, lock=False)
        self.start()

    @property
    def hits(self) -> int:
        """Reads that the replica has answered from memory, by its last report, also those before kills."""
        return int(self._counts[0])

    @property
    def misses(self) -> int:
        """Reads with write ids that the database has answered."""
        return int(self._counts[1])

    def start(self) -> None:
        """Start the replica, and wait until it listens."""
        self._stop, listens = FORKS.Event(), FORKS.Event()
        arguments = (self._options, self._stop, listens, self._counts, self._is_sabotaged)
        self._process = FORKS.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        assert listens.wait(300), f"{self.name} does not start"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL

    def stop(self) -> None:
        self._stop.set()
        self._process.join(60)
        assert self._process.exitcode == 0


def _serve(
    options: ServiceOptions,
    stop: Event,
    listens: Event,
    counts: MutableSequence[int],
    is_sabotaged: bool,
) -> None:
    hits, misses = counts
    assert options.replica is not None
    if is_sabotaged:
        CachedStore._why_not_fresh = lambda *request: None  # type: ignore[method-assign,assignment]
    poll_interval = 3_600.0 if is_sabotaged else 0.1
    with (
        closing(open_cached_store(options.url, options.replica, poll_interval=poll_interval)) as store,
        serving(store, options),
    ):
        listens.set()
        is_over = False
        while not is_over:
            is_over = stop.wait(0.1)
            said = store.statistics()
            counts[0], counts[1] = hits + said.hits, misses + sum(said.misses.values())


@dataclass(frozen=True)
class Read:
    """An answer that a reader got, and the facts that limit a correct answer.

    :param reader: the reader.
    :param table: the table that it read.
    :param partitions: whether it asked for the table's partitions, or for the table itself.
    :param write_ids: the ``ValidWriteIdList`` of the request.
    :param own: the write id under which the reader has written, and not committed; None when it has not.
    :param began: the log's last event after the list was taken, and before the request.
    :param ended: the same after the answer.
    :param shown: a digest of the answer.
    :param in_session: whether the request had the reader's session.
    """

    reader: str
    table: str
    partitions: bool
    write_ids: str
    own: int | None
    began: int
    ended: int
    shown: str
    in_session: bool


def shown_partitions(found: Iterable[PartitionInfo]) -> str:
    """A digest of the partitions and their write ids."""
    return _digest(sorted((*one.values, one.parameters[TAG]) for one in found))


def shown_table(owner: str | None) -> str:
    """A digest of a table, without its partitions."""
    return _digest(owner or "")


def _digest(value: Any) -> str:
    return hashlib.sha1(repr(value).encode()).hexdigest()


@dataclass
class Reported:
    """The outcomes that a writer saw.

    :param transactions: by a transaction's id, whether it was committed.
    :param done: the tags of changes that were acknowledged.
    :param refused: the tags of changes that were refused.
    """

    transactions: dict[int, bool] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def write(uris: Sequence[str], name: str, stop: Event, outcomes: Path) -> None:
    """Change one or two tables in transactions, some of them aborted, and without a transaction.

    :param outcomes: receives the :class:`Reported` outcomes.
    """
    metastore, chance = open_metastore(_rotated(uris, name), timeout_seconds=60), random.Random(name)
    reported = Reported()
    number = 0
    while not stop.is_set():
        number += 1
        txn_id = None
        try:
            if chance.random() < 0.8:
                txn_id = metastore.open_txn(name, "here")
            for table in chance.sample(TABLES, chance.randint(1, 2)):
                for change in range(chance.randint(1, 3)):
                    _change(metastore, chance, table, f"{name} {number} {table} {change}", txn_id, reported)
            if txn_id is not None:
                committed = chance.random() < 0.8
                (metastore.commit_txn if committed else metastore.abort_txn)(txn_id)
                reported.transactions[txn_id] = committed
        except MetastoreUnavailableError:
            _abandon(metastore, txn_id)
        stop.wait(chance.random() * 0.5)
    outcomes.write_bytes(pickle.dumps(reported))


def _change(
    metastore: AnyMetastore,
    chance: random.Random,
    table: str,
    tag: str,
    txn_id: int | None,
    reported: Reported,
) -> None:
    """Change a table or one of its partitions; the change's tag is in its event."""
    part = (chance.choice(PARTITIONS),)
    match chance.choice(["table", "add", "add", "alter", "drop"]):
        case "table":
            metastore.alter_table(DATABASE, table, owner=tag, txn_id=txn_id)
        case "add":
            added = PartitionSpec(part, f"/{table}/{part[0]}", {TAG: tag})
            if not metastore.add_partitions(DATABASE, table, [added], txn_id=txn_id):
                return  # the partition existed already
        case "alter":
            try:
                metastore.alter_partition(DATABASE, table, part, parameters={TAG: tag}, txn_id=txn_id)
            except NoSuchObjectError:
                reported.refused.append(tag)
                return
        case "drop":
            metastore.drop_partitions(DATABASE, table, [part], txn_id=txn_id)
            return
    reported.done.append(tag)


def _abandon(metastore: AnyMetastore, txn_id: int | None) -> None:
    """Abort after the replica was killed, or while the database is away: the change's outcome is unknown."""
    if txn_id is not None:
        with suppress(NoSuchTransactionError):
            _until_it_answers(metastore.abort_txn)(txn_id)


_until_it_answers = tenacity.retry(
    retry=tenacity.retry_if_exception_type(MetastoreUnavailableError),
    wait=tenacity.wait_fixed(0.1),
    stop=tenacity.stop_after_delay(300),
    reraise=True,
)


class Stop(Protocol):
    """Ends a reader: an event, or something like it."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> object: ...


def read(uris: Sequence[str], name: str, stop: Stop, reads: Path) -> None:
    """Take snapshots of two tables, and read each table from one replica or another.

    Before some snapshots the reader writes something, and commits it after the reads: then its next snapshot
    has to show the write.

    :param reads: receives the reads.
    """
    metastore, chance = open_metastore(_rotated(uris, name), timeout_seconds=60), random.Random(name)
    replicas = [ThriftMetastore(uri, timeout_seconds=60) for uri in uris]
    # Half of the readers use our client, which has a session; the others are ordinary clients.
    session = ReaderSession() if int(name[1:]) % 2 else None
    done: list[Read] = []
    committed: dict[str, int] = {}
    number, own = 0, dict[str, int]()
    while not stop.is_set():
        number += 1
        txn_id = None
        # The reader reads its own commit at once, before all replicas have applied it.
        tables = chance.sample([one for one in TABLES if one not in own], 2 - len(own)) + list(own)
        own = {}
        try:
            if chance.random() < 0.2:
                txn_id = metastore.open_txn(name, "here")
                own = {tables[0]: metastore.allocate_table_write_id(txn_id, DATABASE, tables[0])}
                spec = PartitionSpec((name,), f"/{name}", {TAG: f"{name} {number}"})
                metastore.drop_partitions(DATABASE, tables[0], [(name,)], txn_id=txn_id)
                metastore.add_partitions(DATABASE, tables[0], [spec], txn_id=txn_id)
            snapshot = metastore.read_snapshot([(DATABASE, table) for table in tables], txn_id)
            began = metastore.current_event_id()
            for table in chance.choices(tables, k=READS):
                seen = snapshot.tables[f"{DATABASE}.{table}"]
                if txn_id is None and table in committed:
                    assert seen.write_ids.is_valid(committed[table]), "what it committed is not seen"
                with_partitions = chance.random() < 0.7
                any_order = chance.sample(replicas, len(replicas))
                answer = shown(any_order, table, seen, with_partitions, session or ReaderSession())
                about = (name, table, with_partitions, str(seen.write_ids), own.get(table))
                ended = metastore.current_event_id()
                done.append(Read(*about, began, ended, answer, session is not None))
                began = ended
            if txn_id is not None:
                metastore.commit_txn(txn_id)
                committed |= own
        except MetastoreUnavailableError:
            _abandon(metastore, txn_id)
        stop.wait(chance.random() * 0.02)
    reads.write_bytes(pickle.dumps(done))


def shown(
    replicas: Iterable[ThriftMetastore],
    table: str,
    seen: TableSnapshot,
    with_partitions: bool,
    session: ReaderSession,
) -> str:
    """A digest of the first answer; one of the replicas may be dead.

    :param seen: the table's part of the reader's snapshot.
    :param with_partitions: whether to ask for the table's partitions, or for the table itself.
    :param session: the reader's session.
    """
    reader = Reader(valid_write_ids=seen.write_ids, table_id=seen.table_id, session=session)
    for replica in replicas:
        with suppress(MetastoreUnavailableError):
            if with_partitions:
                return shown_partitions(replica.get_partitions(DATABASE, table, **reader))
            return shown_table(replica.get_table(DATABASE, table, **reader).owner)
    raise MetastoreUnavailableError("all replicas are dead")


def _rotated(uris: Sequence[str], name: str) -> str:
    """All servers, in an order that begins with another server for each client."""
    start = int(name[1:]) % len(uris)
    places = [uri.removeprefix("thrift://") for uri in (*uris[start:], *uris[:start])]
    return f"thrift://{','.join(places)}"
