"""One JVM with Hudi for all tests here."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.servers import ZookeeperServer, zookeeper
from tests.real_hudi.jvm import Jvm, Session, running
from tests.real_hudi.one_lock import OneLock

# Of each promise one test, which a push can wait for; `make test-hudi` runs them all.
_EVERY_PUSH = (
    "test_rounds_of_writes[ours_with_all_indexes-]",
    "test_upserts_deletes_and_compactions_in_turn[theirs]",
    "test_every_service_and_then_a_write_of_the_jvm",
    "test_a_commit_of_the_jvm_between_our_data_files_and_our_lock[theirs]",
    "test_ours_stands_still_under_the_lock_until_the_jvm_rolls_it_back[after its entry]",
    "test_the_jvm_rolls_back_what_ours_has_decided_and_inserts_the_same_keys",
    "test_random_batches[partial_update_by_event_time]",
    "test_the_lock_file_is_the_jvms",
    "test_the_jvm_reads_our_lock_object_and_ours_reads_its",
    "test_ours_does_not_write_into_what_the_jvm_has_planned",
    "test_columns_that_the_jvm_changes[int_to_bigint]",
    "test_columns_that_ours_changes[by_a_load]",
    "test_an_index_build_of_ours_and_at_once_a_write_of_the_jvm_that_makes_another[insert-no record index]",
    "test_the_jvm_drops_the_record_index",
    "test_the_properties_that_ours_rewrites_are_read_by_the_jvm",
    "test_a_write_of_ours_that_a_later_requested_one_overtakes_under_the_record_index",
    "test_the_jvm_rolls_our_newest_commit_back",
    "test_the_jvm_truncates_the_table",
    "test_a_jvm_of_another_time_zone[America/Chicago-theirs]",
    "test_the_same_batches[event_time]",
    "test_the_same_batches[partition_metadata_in_Parquet]",
    "test_the_same_batches[metadata_table]",
    "test_the_same_batches[bucket_index]",
    "test_either_resizes_what_both_write[theirs]",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that run on every push; fail if a name in the list is not a test's."""
    ours = {item.name: item for item in items if Path(__file__).parent in item.path.parents}
    if config.getoption("markexpr") == "every_push" and (unknown := set(_EVERY_PUSH) - set(ours)):
        raise pytest.UsageError(f"no tests of the real Hudi: {sorted(unknown)}")
    for name in set(_EVERY_PUSH) & set(ours):
        ours[name].add_marker(pytest.mark.every_push)


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    # The path of a socket has a hundred characters at most, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="real-hudi-") as folder, running(Path(folder)) as jvm:
        yield jvm


@pytest.fixture
def hudi(jvm: Jvm) -> Iterator[Session]:
    """A Spark session of the test's own, in the JVM that all tests share."""
    session = jvm.session()
    yield session
    session.close()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZookeeperServer]:
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as folder, zookeeper(Path(folder)) as server:
        yield server


@pytest.fixture
def one_lock(zookeeper_server: ZookeeperServer, location: Path) -> OneLock:
    """A lock that both sides share."""
    return OneLock(zookeeper_server.hosts, location.name)


@pytest.fixture
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The location of a test's table; the table's name is unique, because the JVM has one catalog."""
    return tmp_path / re.sub(r"\W+", "_", request.node.name).strip("_")
