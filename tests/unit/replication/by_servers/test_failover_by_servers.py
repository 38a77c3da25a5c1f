"""A failover, and the way back, with Thrift servers of both metastores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.exceptions import ReplicationTargetError
from airflow_provider.metastore import AnyMetastore
from airflow_provider.replication import failover
from tests.unit.replication.by_servers.test_by_servers import PairByServers
from tests.unit.replication.by_servers.test_source_by_server import servers
from tests.unit.replication.test_cli import run
from tests.unit.replication.test_failover import (
    test_a_commit_that_came_half_is_undone_by_a_promotion,
    test_a_failover_that_was_killed_is_done_again,
    test_a_planned_failover_loses_nothing_that_is_written_through_it,
    test_a_transaction_that_was_begun_may_end_before_the_failover,
    test_an_unplanned_failover_says_what_is_lacking,
    test_fail_back_copies_only_what_differs,
    test_open_transactions_hold_a_failover_or_are_aborted,
)

__all__ = [
    "pair",
    "servers",
    "test_a_commit_that_came_half_is_undone_by_a_promotion",
    "test_a_failover_that_was_killed_is_done_again",
    "test_a_planned_failover_loses_nothing_that_is_written_through_it",
    "test_a_server_that_answers_late_shows_a_failover_the_present",
    "test_a_transaction_that_was_begun_may_end_before_the_failover",
    "test_an_unplanned_failover_says_what_is_lacking",
    "test_by_the_command_line",
    "test_fail_back_copies_only_what_differs",
    "test_open_transactions_hold_a_failover_or_are_aborted",
]


@pytest.fixture
def pair(tmp_path: Path, servers: Callable[..., AnyMetastore]) -> Iterator[PairByServers]:
    made = PairByServers(tmp_path)
    made.source_server, made.target_server = servers(made.source), servers(made.target)
    made.lake.write("trips", {1: 10, 100: 5})
    made.replicate()
    yield made
    made.source.close()
    made.target.close()


def test_a_server_that_answers_late_shows_a_failover_the_present(
    pair: PairByServers, servers: Callable[..., AnyMetastore]
) -> None:
    late = {"eventual_reads": True, "eventual_databases": True}
    pair.source_server, pair.target_server = servers(pair.source, **late), servers(pair.target, **late)
    pair.lake.create("stops")
    pair.lake.write("stops", {1: 2})
    failover(pair.policy, *pair.sides)
    pair.check_equal()
    with pytest.raises(ReplicationTargetError, match="dr-back"):
        pair.lake.write("stops", {1: 3})


def test_by_the_command_line(pair: PairByServers, tmp_path: Path) -> None:
    pair.lake.write("trips", {1: 11})
    urls = [f"--source={pair.source_server.url}", f"--target={pair.target_server.url}"]
    where = [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy", "--policy=dr"]
    assert run("failover", *urls, *where)["lacking"] == []
    pair.check_equal()
