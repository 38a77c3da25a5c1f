"""The check of the replicas' reads finds the mistakes that it is made for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider.metastore import Column, Metastore, ReaderSession
from airflow_provider.metastore.api.metastore import open_embedded_metastore
from airflow_provider.metastore.cache.cached_store import CachedStore
from airflow_provider.metastore.model.reader import Reader
from tests.processes.replicas.processes import DATABASE, Read, shown_table
from tests.processes.replicas.serial_history import SerialHistory


@pytest.fixture
def metastore(tmp_path: Path) -> Metastore:
    opened = open_embedded_metastore(f"sqlite:///{tmp_path}/m.db")
    opened.create_database(DATABASE)
    opened.create_table(DATABASE, "t", location="/t", schema=[Column("id", "bigint")])
    return opened


def through(replicas: list[CachedStore], metastore: Metastore, session: ReaderSession | None) -> list[Read]:
    """The answers that a reader with one snapshot gets from one replica after the other."""
    seen = metastore.read_snapshot([(DATABASE, "t")]).tables[f"{DATABASE}.t"]
    at = metastore.current_event_id()
    reader = Reader(valid_write_ids=seen.write_ids, table_id=seen.table_id, session=session)
    txn_id = metastore.open_txn("me", "here")
    metastore.alter_table(DATABASE, "t", owner="new", txn_id=txn_id)
    metastore.commit_txn(txn_id)
    replicas[0].catch_up()
    reads = []
    for one in replicas:
        answer = shown_table(one.get_table(DATABASE, "t", **reader).owner)
        ended = metastore.current_event_id()
        reads.append(Read("r", "t", False, str(seen.write_ids), None, at, ended, answer, True))
    return reads


@pytest.mark.parametrize(("makes_session", "goes_back"), [(ReaderSession, False), (lambda: None, True)])
def test_a_reader_that_goes_backwards_is_found(
    metastore: Metastore, makes_session: Callable[[], ReaderSession | None], goes_back: bool
) -> None:
    """A cache that ignores the session gives such answers: each alone is right for the list of write ids."""
    stores = [CachedStore(open_embedded_metastore(metastore.url), name) for name in ("a", "b")]
    for one in stores:
        one.updater.begin()
        one.updater.prewarm()
    with closing(metastore), closing(stores[0]), closing(stores[1]):
        reads = through(stores, metastore, makes_session())
        told = SerialHistory(metastore.next_events(0))
    for read in reads:
        told.check([read])
    if goes_back:
        with pytest.raises(AssertionError, match="goes backwards: nothing from event"):
            told.check(reads)
    else:
        told.check(reads)


def test_an_answer_without_what_is_valid_is_found(metastore: Metastore) -> None:
    """A cache that does not check whether its copy is stale gives such answers."""
    with closing(metastore):
        metastore.alter_table(DATABASE, "t", owner="new")
        seen = str(metastore.valid_write_id_list(DATABASE, "t"))
        at = metastore.current_event_id()
        told = SerialHistory(metastore.next_events(0))
    told.check([Read("r", "t", False, seen, None, at, at, shown_table("new"), False)])
    with pytest.raises(AssertionError, match="no state from event"):
        told.check([Read("r", "t", False, seen, None, at, at, shown_table(None), False)])
