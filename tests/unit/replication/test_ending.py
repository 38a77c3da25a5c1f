"""The end of a replication: its target becomes an ordinary database; the source no longer waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.concurrency.readers import registered_consumers
from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchObjectError,
    ReplicationLeaseError,
    ReplicationTargetError,
)
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import AnyMetastore
from airflow_provider.replication import abort_failover, end_replication, failover
from tests.unit.concurrency.transactions.transactional_lake import data_of
from tests.unit.replication.by_servers.test_source_by_server import servers
from tests.unit.replication.pair import Pair
from tests.unit.replication.test_cli import run
from tests.unit.replication.test_killed import KilledError

__all__ = ["servers"]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.lake.write("trips", {1: 10, 100: 5})
    made.replicate()
    return made


def write_to_target(pair: Pair, rows: dict[int, int]) -> None:
    ingest_arrow("lake_copy.trips", data_of(rows), "upsert", metastore=pair.target)


def check_ended(pair: Pair) -> None:
    """Check that the target takes writes and keeps its rows, and that no side has the replication."""
    write_to_target(pair, {1: 12})
    assert pair.rows_of_target("trips") == {1: 12, 100: 5}
    assert pair.target.replication_target().replications() == []
    assert pair.source.consumers() == []
    assert registered_consumers(pair.lake.tables["trips"].storage) == []
    assert registered_consumers(pair.copy_of("trips").storage) == []
    with pytest.raises(NoSuchObjectError, match="'dr'"):
        end_replication("dr", pair.target)


def test_the_target_takes_writes_and_the_source_waits_no_longer(pair: Pair) -> None:
    with pytest.raises(ReplicationTargetError):
        write_to_target(pair, {1: 11})
    opened = pair.lake.begin()
    pair.lake.write("trips", {1: 11}, opened)
    pair.replicate()
    done = end_replication("dr", pair.target, source=pair.source)
    assert (done.databases, done.aborted) == (("lake_copy",), (opened,))
    check_ended(pair)
    pair.lake.commit(opened)


def test_a_commit_that_came_half_is_undone(pair: Pair) -> None:
    pair.lake.write("trips", {1: 11})

    def step(name: str) -> None:
        if name.startswith("apply COMMIT_TXN"):
            raise KilledError

    with pytest.raises(KilledError):
        pair.replicator(step).run()
    end_replication("dr", pair.target, source=pair.source)
    check_ended(pair)


def test_without_its_source_only_the_target_forgets_it(pair: Pair) -> None:
    end_replication("dr", pair.target)
    write_to_target(pair, {1: 12})
    assert [each.name for each in pair.source.consumers()] == ["replication-dr"]


def test_by_servers(pair: Pair, servers: Callable[..., AnyMetastore]) -> None:
    end_replication("dr", servers(pair.target), source=servers(pair.source))
    check_ended(pair)


def test_by_the_command_line(pair: Pair) -> None:
    urls = [f"--{side}=sqlite:///{pair.root}/{side}/metastore.db" for side in ("source", "target")]
    done = run("replication", "end", "--policy=dr", *urls)
    assert (done["policy"], done["databases"], done["aborted"]) == ("dr", ["lake_copy"], [])
    check_ended(pair)


def test_a_running_replicator_is_not_ended(pair: Pair) -> None:
    pair.target.replication_target().keep_lease("dr", "somebody", 60.0)
    with pytest.raises(ReplicationLeaseError, match="somebody"):
        end_replication("dr", pair.target, source=pair.source)
    with pytest.raises(ReplicationTargetError):
        write_to_target(pair, {1: 11})


def test_another_source_is_refused(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other: AnyMetastore = Pair(tmp_path / "other").source
    with pytest.raises(InvalidInputError, match=r"source/metastore\.db"):
        end_replication("dr", pair.target, source=other)


def test_a_failover_that_was_begun_no_longer_stops_the_source(pair: Pair) -> None:
    pair.source.replication_target().freeze("dr", ["lake"])
    end_replication("dr", pair.target, source=pair.source)
    pair.lake.write("trips", {1: 11})
    check_ended(pair)


def test_after_a_failover_each_direction_is_ended_by_itself(pair: Pair) -> None:
    failover(pair.policy, *pair.sides)
    end_replication("dr", pair.target, source=pair.source)
    write_to_target(pair, {1: 12})
    with pytest.raises(ReplicationTargetError):
        pair.lake.write("trips", {1: 11})
    end_replication("dr-back", pair.source, source=pair.target)
    pair.lake.write("trips", {1: 11})
    with pytest.raises(NoSuchObjectError):
        abort_failover(pair.policy, *pair.sides)
