"""A source and a target, both of which the replicator asks through Thrift servers of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.exceptions import InvalidInputError, ReplicationLeaseError, ReplicationTargetError
from airflow_provider.metastore import AnyMetastore
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.replication import (
    Replicator,
    replication_lag,
    replications,
)
from tests.unit.replication.by_servers.test_source_by_server import servers
from tests.unit.replication.pair import KINDS, Pair
from tests.unit.replication.test_bootstrap import (
    test_a_position_that_has_fallen_out_of_the_log_says_so,
    test_aborted_write_ids_stay_aborted,
    test_open_transactions_are_carried_over,
    test_what_the_source_has_lost_meanwhile_goes,
)
from tests.unit.replication.test_cli import run
from tests.unit.replication.test_events import (
    test_a_transaction_of_the_replicator_is_nobody_elses_to_end,
    test_changes_of_the_catalog_arrive,
)
from tests.unit.replication.test_killed import KilledError

__all__ = [
    "pair",
    "pair_urls",
    "servers",
    "test_a_position_that_has_fallen_out_of_the_log_says_so",
    "test_a_replicator_that_is_killed_at_any_step_goes_on",
    "test_a_request_that_nobody_can_mean_is_refused",
    "test_a_transaction_of_the_replicator_is_nobody_elses_to_end",
    "test_aborted_write_ids_stay_aborted",
    "test_another_replicator_has_the_lease",
    "test_by_the_command_line",
    "test_changes_of_the_catalog_arrive",
    "test_open_transactions_are_carried_over",
    "test_the_database_of_the_target_goes_on_where_its_server_was",
    "test_what_the_source_has_lost_meanwhile_goes",
]


class PairByServers(Pair):
    """A source and its target; the replicator has a server of either side."""

    source_server: AnyMetastore
    target_server: AnyMetastore

    @property
    def sides(self) -> tuple[AnyMetastore, AnyMetastore]:
        return self.source_server, self.target_server


@pytest.fixture
def pair_urls() -> tuple[str | None, str | None]:
    """URLs of two new databases, which are files of SQLite."""
    return (None, None)


@pytest.fixture
def pair(
    tmp_path: Path, pair_urls: tuple[str | None, str | None], servers: Callable[..., AnyMetastore]
) -> Iterator[PairByServers]:
    made = PairByServers(tmp_path, *pair_urls)
    made.source_server, made.target_server = servers(made.source), servers(made.target)
    made.lake.write("trips", {1: 10, 100: 5})
    made.lake.write("trips", {2: 20})
    made.replicate()
    yield made
    made.source.close()
    made.target.close()


def dying_after(steps: int) -> Callable[[str], None]:
    """A replicator's ``step`` that raises after this many steps."""
    left = [None] * steps

    def step(_: str) -> None:
        if not left:
            raise KilledError
        left.pop()

    return step


def test_a_replicator_that_is_killed_at_any_step_goes_on(pair: PairByServers) -> None:
    pair.lake.options = KINDS["merge-on-read"]
    pair.lake.create("stops")
    dies_at, is_killed = 0, True
    while is_killed:
        txn = pair.lake.begin()
        pair.lake.write("trips", {1: dies_at}, txn)
        pair.lake.write("stops", {1: dies_at, 100: 2}, txn)
        pair.source.alter_table("lake", "riders", parameters={"a": str(dies_at)})
        pair.lake.commit(txn)
        try:
            pair.replicator(dying_after(dies_at)).run()
            is_killed = False
        except KilledError:
            dies_at += 4
    pair.check_equal()
    assert dies_at > 12
    lag = replication_lag("dr", pair.source_server, pair.target_server)
    assert (lag.events, lag.last_error) == (0, None)
    assert lag.bytes_copied > 0


def test_another_replicator_has_the_lease(pair: PairByServers) -> None:
    records = pair.target_server.replication_target()
    records.keep_lease("dr", "another", 60.0)
    with pytest.raises(ReplicationLeaseError, match="another is at it"):
        pair.replicate()
    records.release_lease("dr", "another")
    pair.replicate()
    [known] = replications(pair.target_server)
    assert known == replications(pair.target)[0]
    assert (known.lease_owner, known.phase) == (None, "following")


def test_the_database_of_the_target_goes_on_where_its_server_was(pair: PairByServers) -> None:
    for target in (pair.target, pair.target_server):
        pair.lake.write("riders", {7: 70})
        assert Replicator(pair.policy, pair.source, target).run().transactions == 1
        pair.check_equal()
    with pytest.raises(ReplicationTargetError, match=r"repl\.target\.for"):
        pair.target_server.drop_table("lake_copy", "trips")


def test_by_the_command_line(pair: PairByServers, tmp_path: Path) -> None:
    pair.lake.write("riders", {7: 70})
    urls = [f"--source={pair.source_server.url}", f"--target={pair.target_server.url}"]
    where = [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy", "--policy=dr"]
    assert [lag["transactions"] for lag in run("replication", "status", *urls)] == [1]
    assert run("replicate", *urls, *where)["transactions"] == 1
    pair.check_equal()
    assert [each["policy"] for each in run("replication", "status", urls[1])] == ["dr"]


def test_a_request_that_nobody_can_mean_is_refused(pair: PairByServers) -> None:
    server = pair.target_server.replication_target()._server  # type: ignore[attr-defined]
    for request, why in (
        (hive.ReplicatorRequest(operation="drop_everything", arguments=b""), "does not know"),
        (hive.ReplicatorRequest(operation="restart", arguments=b"dr"), "no zipped JSON"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            server.read("serve_replicator", request)
