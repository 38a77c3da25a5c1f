"""A source that the replicator asks through a Thrift server of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore import AnyMetastore, PartitionSpec, TxnState, open_metastore
from airflow_provider.metastore.model import ZIPPED_FORMAT
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, serving
from airflow_provider.replication import (
    ReplicationPolicy,
    Replicator,
    failover,
    replication_lag,
)
from tests.unit.replication.pair import Pair
from tests.unit.replication.test_bootstrap import (
    test_a_position_that_has_fallen_out_of_the_log_says_so,
    test_aborted_write_ids_stay_aborted,
    test_open_transactions_are_carried_over,
)
from tests.unit.replication.test_cli import run
from tests.unit.replication.test_events import test_changes_of_the_catalog_arrive

__all__ = [
    "test_a_position_that_has_fallen_out_of_the_log_says_so",
    "test_aborted_write_ids_stay_aborted",
    "test_changes_of_the_catalog_arrive",
    "test_open_transactions_are_carried_over",
]


class PairByServer(Pair):
    """A source and its target; the replicator has a server of the source."""

    server: AnyMetastore

    @property
    def sides(self) -> tuple[AnyMetastore, AnyMetastore]:
        return self.server, self.target


@pytest.fixture
def servers() -> Iterator[Callable[..., AnyMetastore]]:
    """A function that makes a server of a metastore, and a client of the server."""
    with ExitStack() as stack:

        def serve(metastore: Any, **options: Any) -> AnyMetastore:
            given = ServiceOptions("", port=0, **options)
            server = stack.enter_context(serving(metastore, given, housekeeping=False))
            client = open_metastore(f"thrift://127.0.0.1:{server.port}")
            stack.callback(client.close)
            return client

        yield serve


@pytest.fixture
def pair(tmp_path: Path, servers: Callable[..., AnyMetastore]) -> PairByServer:
    made = PairByServer(tmp_path)
    made.server = servers(made.source, message_format=ZIPPED_FORMAT)
    made.lake.write("trips", {1: 10, 100: 5})
    made.lake.write("trips", {2: 20})
    made.replicate()
    return made


def test_the_state_by_a_server_is_the_state_by_the_database(pair: PairByServer) -> None:
    source = pair.source
    location = pair.source.get_table("lake", "trips").location
    specs = [PartitionSpec(("a'b",), f"{location}/x", {"k": "v"}), PartitionSpec((None,), f"{location}/y")]
    source.add_partitions("lake", "trips", specs)
    source.create_function("lake", "f", "F", resources=("s3://jars/f.jar",))
    source.alter_database("lake", comment="caf\u00e9", parameters={"a": "b"})
    opened, aborted, ended = (pair.lake.begin() for _ in range(3))
    pair.lake.write("trips", {3: 30}, opened)
    pair.lake.write("riders", {3: 30}, aborted)
    pair.lake.abort(aborted)
    pair.lake.commit(ended)
    asked = ({"lake", "missing"}, {opened, aborted, ended, 999})
    here, there = source.replication_state(*asked), pair.server.replication_state(*asked)
    [database] = here.databases
    # Hive's struct of a database has no id.
    assert vars(there) == vars(here) | {"databases": (type(database)(**(vars(database) | {"id": -1})),)}
    assert there.ended == {opened: TxnState.OPEN, aborted: TxnState.ABORTED, ended: TxnState.COMMITTED}
    assert there.open_txns == {opened: {("lake", "trips"): 4}}  # the change of partitions took 3


def test_a_source_may_be_given_by_its_server_and_then_by_its_database(
    pair: PairByServer, servers: Callable[..., AnyMetastore]
) -> None:
    assert pair.replicator().status().source == pair.server.url
    pair.lake.write("riders", {7: 70})
    assert replication_lag("dr", pair.server, pair.target).transactions == 1
    for source in (pair.source, servers(pair.source), pair.source):
        pair.lake.write("riders", {8: 80})
        Replicator(pair.policy, source, pair.target).run()
        assert pair.replicator().status().source == source.url
        pair.check_equal()
    pair.lake.write("trips", {2: 21})
    assert failover(pair.policy, pair.server, pair.target).lacking == ()
    pair.check_equal()


def test_by_the_command_line(pair: PairByServer, tmp_path: Path) -> None:
    pair.lake.write("riders", {7: 70})
    target = f"--target=sqlite:///{tmp_path}/target/metastore.db"
    where = [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy", "--policy=dr"]
    server, database = (
        f"--source={url}" for url in (pair.server.url, f"sqlite:///{tmp_path}/source/metastore.db")
    )
    assert [lag["transactions"] for lag in run("replication", "status", target, server)] == [1]
    assert run("replicate", server, target, *where)["transactions"] == 1
    pair.check_equal()
    for source in (server, database):
        assert [lag["events"] for lag in run("replication", "status", target, source)] == [0]


def test_another_metastore_is_not_taken_for_the_source(
    pair: PairByServer, tmp_path: Path, servers: Callable[..., AnyMetastore]
) -> None:
    (tmp_path / "other").mkdir()
    other = Pair(tmp_path / "other")
    position = pair.replicator().status().event_id
    assert position is not None
    while other.source.current_event_id() <= position:
        other.source.abort_txn(other.lake.begin())
    refused = Replicator(pair.policy, servers(other.source), pair.target)
    with pytest.raises(InvalidInputError, match="give the new one another name"):
        refused.run()
    # It has a consumer of the same name, at another position.
    other.source.register_consumer("replication-dr", event_id=position - 1)
    with pytest.raises(InvalidInputError, match="give the new one another name"):
        refused.run()
    pair.replicate()
    pair.check_equal()


def test_a_server_of_the_target_is_no_source(
    pair: PairByServer, servers: Callable[..., AnyMetastore]
) -> None:
    policy = ReplicationPolicy("loop", {"lake": "again"}, {"/a": "/b"})
    with pytest.raises(InvalidInputError, match="source and target are one metastore"):
        Replicator(policy, servers(pair.target), pair.target).run()
    assert [one.name for one in pair.target.consumers()] == []
