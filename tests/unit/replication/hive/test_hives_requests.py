"""A replication of this package beside the objects of Hive's own replication in source and target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes as hive

from airflow_provider.metastore import Metastore, PartitionSpec
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from tests.unit.metastore.hive.test_thrift_replication import client_of, noted, written
from tests.unit.replication.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    for name, table in made.lake.tables.items():
        made.source.add_partitions("lake", name, [PartitionSpec(("sf",), f"{table.location}/city=sf")])
    return made


@contextmanager
def _hives_client(metastore: Metastore) -> Iterator[Any]:
    with (
        serving(metastore, ServiceOptions("", port=0), housekeeping=False) as server,
        client_of(server.port) as opened,
    ):
        yield opened


@pytest.fixture
def source(pair: Pair) -> Iterator[Any]:
    with _hives_client(pair.source) as opened:
        yield opened


@pytest.fixture
def target(pair: Pair) -> Iterator[Any]:
    with _hives_client(pair.target) as opened:
        yield opened


def test_what_hives_clients_tell_the_source_changes_nothing_at_the_target(pair: Pair, source: Any) -> None:
    repl_dump = {"replPolicy": "lake", "txn_type": hive.TxnType.DEFAULT}
    [dump] = source.open_txns(hive.OpenTxnRequest(1, "hive", "here", **repl_dump)).txn_ids
    early = pair.lake.begin()
    pair.lake.write("trips", {1: 10}, early)
    source.add_write_notification_log(noted(early, "trips", "/a", values=["sf"]))
    pair.replicate()  # the bootstrap
    source.commit_txn(hive.CommitTxnRequest(dump, **repl_dump))
    source.seed_txn_id(hive.SeedTxnIdRequest(500))
    late = pair.lake.begin()
    assert late == 500
    pair.lake.write("trips", {100: 20}, late)
    source.add_write_notification_log(noted(late, "trips", "/b", values=["sf"]))
    aborted = pair.lake.begin()
    pair.lake.write("riders", {1: 1}, aborted)
    source.add_write_notification_log(noted(aborted, "riders", "/c", values=["sf"]))
    pair.lake.commit(late)
    pair.lake.commit(early)
    pair.lake.abort(aborted)
    pair.replicate()
    pair.check_equal()
    assert pair.rows_of_target("trips") == {1: 10, 100: 20}
    assert pair.mapped() == {}
    assert pair.target.valid_txn_list().min_open > pair.target.valid_txn_list().high_watermark
    assert [told.files for told in written(source, early)] == ["/a###"]


def test_a_target_with_seeded_ids_and_notifications_of_its_own(pair: Pair, target: Any) -> None:
    pair.replicate()
    target.seed_txn_id(hive.SeedTxnIdRequest(900))
    own = pair.target.open_txn("hive", "here")
    pair.lake.write("trips", {1: 10})
    pair.replicate()
    told = noted(own, "trips", "/a", values=["sf"], database="lake_copy")
    target.add_write_notification_log(told)
    pair.target.abort_txn(own)
    pair.lake.write("trips", {1: 11, 2: 20})
    pair.replicate()
    pair.check_equal()
    assert [one.files for one in written(target, own)] == ["/a###"]
