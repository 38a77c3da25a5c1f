"""Lost conflicts: a rebase merges only the file groups that both touched, on the other write's result."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from airflow_provider.concurrency import PRIORITIES, WriteSettings, begin_write
from airflow_provider.exceptions import HigherPriorityWriteError, WriteConflictError
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.ingestion import Ingestion
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.services.orphans.orphans import delete_reverted_files
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.storage.storage import Storage
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import KIB, Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
REBASE: dict[str, Any] = {"on_conflict": "rebase"}
NOT_FILLED: dict[str, Any] = {"small_file_limit": 0}

Row = dict[str, Any]


def row(id_: int, value: str, part: str = "a", ts: int = 1) -> Row:
    return {"id": id_, "part": part, "value": value, "ts": ts}


def rows(ids: range, value: str, part: str = "a", ts: int = 1) -> list[Row]:
    return [row(id_, value, part, ts) for id_ in ids]


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    """A table: partition ``a`` with rows 0 to 9 in one file group, 10 to 19 in another; ``b`` with 0 to 9."""
    made = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    made.ingest("bulk_insert", rows(range(10), "old"))
    made.ingest("bulk_insert", [*rows(range(10, 20), "old"), *rows(range(10), "old", "b")])
    return made


OLD = {(part, id_): row(id_, "old", part) for part, end in (("a", 20), ("b", 10)) for id_ in range(end)}


def expected(*changes: Row, gone: list[tuple[str, int]] | None = None) -> list[Row]:
    """The fixture's rows, in order, with some replaced."""
    found = dict(OLD)
    for each in changes:
        found[each["part"], each["id"]] = each
    return [each for key, each in found.items() if key not in (gone or [])]


def overtaken(
    table: LakeTable, operation: str, batch: list[Row], *others: Callable[[], object], **job: Any
) -> dict[str, Any]:
    """Run a write; when it has written its data files, another write commits before each of its tries."""
    settings = REBASE | NOT_FILLED | job
    return ingest_arrow(table.location, table.arrow(batch), operation, lock=MeetingLock(*others), **settings)


def overtaken_early(
    table: LakeTable, operation: str, batch: list[Row], other: Callable[[], object], **job: Any
) -> dict[str, Any]:
    """Run a write; when it has begun and not planned, another write commits."""
    opened = table.table
    described = IngestJob.of(table.location, operation=operation, **(REBASE | NOT_FILLED | job))

    @contextmanager
    def around(ingestion: Ingestion) -> Any:
        other()
        yield

    return write_rows(described, opened, ArrowRows.of(described, opened, table.arrow(batch)), around=around)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rebases merge outside the lock, so that a write can be overtaken more than once."""
    monkeypatch.setattr("airflow_provider.concurrency.write.committing.SHORT_TURN_SECONDS", -1.0)


def test_updates_of_the_same_keys(table: LakeTable) -> None:
    batch = [row(1, "mine"), row(2, "mine"), row(11, "mine"), row(3, "mine", "b")]
    theirs = [row(2, "theirs"), row(4, "theirs")]
    kept = {group.file_id: group.path for group in table.table.view().all_base_files()}
    result = overtaken(table, "upsert", batch, lambda: table.ingest("upsert", theirs))
    assert (result["rebases"], result["rows_updated"], result["rows_inserted"]) == (1, 4, 0)
    table.check_now(expected(*theirs, *batch))
    assert len(kept) == len(table.table.view().all_base_files())


def test_only_the_lost_file_groups_are_written_again(table: LakeTable) -> None:
    batch = [row(1, "mine"), row(11, "mine"), row(3, "mine", "b")]
    result = overtaken(table, "upsert", batch, lambda: table.ingest("upsert", [row(1, "theirs")]))
    tokens = {
        (base_file.partition_path, base_file.write_token)
        for base_file in table.table.view().all_base_files()
        if base_file.instant == result["instant"]
    }
    # Three targets, one of which the write had to make a second time.
    assert len(tokens) == 3
    assert {token for _, token in tokens} <= {"0-0-0", "1-0-0", "2-0-0", "3-0-0"}
    assert ("part=a", "3-0-0") in tokens
    table.check_now(expected(*batch))


def test_raising_leaves_the_table_to_the_winner(table: LakeTable) -> None:
    other = [row(1, "theirs")]
    with pytest.raises(WriteConflictError, match="lost a write conflict"):
        overtaken(
            table, "upsert", [row(1, "mine")], lambda: table.ingest("upsert", other), on_conflict="raise"
        )
    table.check_now(expected(*other))


def test_the_larger_ordering_value_wins_whoever_commits_first(table: LakeTable) -> None:
    batch = [row(1, "mine", ts=5), row(2, "mine", ts=5)]
    theirs = [row(1, "theirs", ts=9), row(2, "theirs", ts=3)]
    overtaken(table, "upsert", batch, lambda: table.ingest("upsert", theirs))
    table.check_now(expected(theirs[0], batch[1]))


def test_a_row_that_was_beaten_is_not_forgotten(table: LakeTable) -> None:
    table.ingest("upsert", [row(1, "new", ts=9)])
    batch = [row(1, "mine", ts=5), row(2, "mine", ts=5)]
    overtaken(table, "upsert", batch, lambda: table.ingest("delete", [row(1, "", ts=9)]))
    # The first merge had left the row out, because there was a newer version.
    table.check_now(expected(*batch))


def test_the_same_new_key_in_two_new_file_groups(table: LakeTable) -> None:
    batch = [row(50, "mine", "c"), row(51, "mine", "c")]
    theirs = [row(51, "theirs", "c"), row(52, "theirs", "c")]
    result = overtaken(table, "upsert", batch, lambda: table.ingest("upsert", theirs))
    assert (result["rebases"], result["rows_inserted"], result["rows_updated"]) == (1, 1, 1)
    table.check_now(expected(*theirs, *batch))
    assert len(table.table.view().base_files("part=c")) == 1


def test_new_keys_that_differ_do_not_conflict(table: LakeTable) -> None:
    theirs = [row(52, "theirs", "c")]
    result = overtaken(table, "upsert", [row(50, "mine", "c")], lambda: table.ingest("upsert", theirs))
    assert result["rebases"] == 0
    table.check_now(expected(row(50, "mine", "c"), *theirs))


def test_the_same_new_key_beside_updates(table: LakeTable) -> None:
    batch = [row(1, "mine"), row(30, "mine"), row(31, "mine")]
    theirs = [row(15, "theirs"), row(31, "theirs")]
    overtaken(table, "upsert", batch, lambda: table.ingest("upsert", theirs, **NOT_FILLED))
    table.check_now(expected(*theirs, *batch))


@pytest.mark.parametrize(
    ("mine", "theirs"), [("delete", "upsert"), ("upsert", "delete"), ("delete", "delete")]
)
def test_deletes_and_upserts(table: LakeTable, mine: str, theirs: str) -> None:
    own = [row(1, "mine"), row(11, "mine"), row(2, "mine")]
    other = [row(1, "theirs"), row(3, "theirs")]
    overtaken(table, mine, own, lambda: table.ingest(theirs, other))
    changes = [*(other if theirs == "upsert" else []), *(own if mine == "upsert" else [])]
    gone = [("a", 3)] if theirs == "delete" else []
    if mine == "delete":
        gone += [("a", 1), ("a", 11), ("a", 2)]
    table.check_now(expected(*changes, gone=gone))


def test_inserts_that_fill_the_same_file_group(table: LakeTable) -> None:
    def theirs() -> None:
        table.ingest("insert", [row(60, "theirs", "b")])

    result = overtaken(table, "insert", [row(61, "mine", "b")], theirs, small_file_limit=100 * KIB * KIB)
    assert (result["rebases"], result["rows_inserted"]) == (1, 1)
    table.check_now(expected(row(60, "theirs", "b"), row(61, "mine", "b")))


def test_overtaken_again_and_again(table: LakeTable, patient: None) -> None:
    batch = [row(1, "mine"), row(11, "mine"), row(70, "mine", "c")]
    others = [
        lambda: table.ingest("upsert", [row(1, "first"), row(2, "first")]),
        lambda: table.ingest("upsert", [row(11, "second"), row(70, "second", "c")]),
        lambda: table.ingest("delete", [row(1, ""), row(3, "")]),
    ]
    overtaken(table, "upsert", batch, *others)
    table.check_now(expected(row(2, "first"), *batch, gone=[("a", 3)]))


def test_too_many_rebases(table: LakeTable, patient: None) -> None:
    others = [lambda n=n: table.ingest("upsert", [row(1, str(n))]) for n in range(2)]
    with pytest.raises(WriteConflictError, match="after 1 rebases"):
        overtaken(table, "upsert", [row(1, "mine")], *others, max_rebases=1)
    table.check_now(expected(row(1, "1")))


# --- clustering -----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("requested", ["earlier", "later"])
def test_keys_that_were_clustered_away(table: LakeTable, requested: str, operation: str) -> None:
    early = Clustering(table.table, "part=a", outputs=3) if requested == "earlier" else None
    batch = [row(5, "mine"), row(12, "mine"), row(7, "mine", "b")]

    def cluster() -> None:
        (early or Clustering(table.table, "part=a", outputs=3)).commit()

    # Only the priorities decide: a write always rebases onto a rewrite of lower priority.
    result = overtaken_early(table, operation, batch, cluster, on_conflict="raise")
    assert result["rebases"] == 1
    gone = [(each["part"], each["id"]) for each in batch]
    table.check_now(expected(*batch) if operation == "upsert" else expected(gone=gone))
    # Readers would not see a slice behind one that was requested later.
    assert result["action"] == ("commit" if requested == "earlier" else "replacecommit")


@pytest.mark.parametrize("requested", ["earlier", "later"])
def test_clustered_and_changed_after_it(table: LakeTable, patient: None, requested: str) -> None:
    early = Clustering(table.table, "part=a", priority=400) if requested == "earlier" else None
    batch = [row(5, "mine"), row(12, "mine"), row(80, "mine")]
    others = [
        lambda: (early or Clustering(table.table, "part=a", priority=400)).commit(),
        lambda: table.ingest("upsert", [row(5, "theirs"), row(6, "theirs"), row(80, "theirs")]),
        lambda: table.ingest("upsert", [row(12, "last"), row(13, "last")]),
    ]
    overtaken(table, "upsert", batch, *others)
    table.check_now(expected(row(6, "theirs"), row(13, "last"), *batch))
    assert len({(r["part"], r["id"]) for r in table.rows()}) == len(table.rows())


def test_clustered_twice(table: LakeTable, patient: None) -> None:
    batch = [row(5, "mine"), row(12, "mine")]
    others = [
        lambda: Clustering(table.table, "part=a", outputs=4, priority=400).commit(),
        lambda: Clustering(table.table, "part=a", outputs=1, priority=400).commit(),
    ]
    overtaken(table, "upsert", batch, *others)
    table.check_now(expected(*batch))


@pytest.fixture
def uneven(lake: Lake) -> LakeTable:
    """A table: partition ``a`` with a small file group, rows 0 to 9, and a larger one, rows 10 to 19."""
    made = lake.create(SCHEMA, partition_by=["part"])
    noise = random.Random(7)
    made.ingest("bulk_insert", rows(range(10), "old"))
    made.ingest("bulk_insert", [row(n, noise.randbytes(500).hex()) for n in range(10, 20)])
    return made


@pytest.mark.parametrize("clustered", [False, True])
def test_what_is_written_is_not_filled_further(uneven: LakeTable, patient: None, clustered: bool) -> None:
    # Row 12 was an update and has to be added once more; the small file group would get it.
    before = [each for each in uneven.rows() if each["id"] not in (2, 12)]
    others: list[Callable[[], object]] = [lambda: uneven.ingest("delete", [row(12, "")])]
    if clustered:  # then a new file group replaces the small one, which is still visible
        others.insert(0, lambda: Clustering(uneven.table, "part=a", priority=400).commit())
    batch = [row(2, "mine"), row(12, "mine")]
    overtaken(uneven, "upsert", batch, *others, small_file_limit=100 * KIB * KIB)
    uneven.check_now([*before, *batch])


def test_a_place_that_was_taken_is_given_back(uneven: LakeTable, patient: None) -> None:
    # The new row moves with the small file group, which a new file group replaces. Then the row is found
    # elsewhere, and the small file group is no longer replaced.
    before = uneven.rows()
    others: list[Callable[[], object]] = [
        lambda: uneven.ingest("upsert", [row(2, "theirs")]),
        lambda: uneven.ingest("bulk_insert", [row(100, "theirs")]),
    ]
    result = overtaken(uneven, "upsert", [row(100, "mine")], *others, small_file_limit=8 * KIB * KIB)
    assert result["rebases"] == 2
    uneven.check_now([*(each for each in before if each["id"] != 2), row(2, "theirs"), row(100, "mine")])


# --- replacing ------------------------------------------------------------------------------


def test_overwriting_what_was_changed(table: LakeTable) -> None:
    batch = [row(1, "mine"), row(2, "mine")]

    def theirs() -> None:
        table.ingest("upsert", [row(3, "theirs"), row(99, "theirs")], **NOT_FILLED)

    result = overtaken(table, "insert_overwrite", batch, theirs)
    assert result["rebases"] == 1
    table.check_now([*batch, *(each for each in expected() if each["part"] == "b")])


def test_overwriting_what_was_clustered(table: LakeTable) -> None:
    batch = [row(1, "mine")]
    overtaken(
        table,
        "insert_overwrite_table",
        batch,
        lambda: Clustering(table.table, "part=a", priority=400).commit(),
    )
    table.check_now(batch)


def test_overwriting_an_empty_partition_in_which_others_add_the_same_key(table: LakeTable) -> None:
    batch = [row(1, "mine", "c"), row(2, "mine", "c")]
    theirs = [row(2, "theirs", "c"), row(3, "theirs", "c")]
    overtaken(table, "insert_overwrite", batch, lambda: table.ingest("upsert", theirs))
    table.check_now(expected(*batch))


def test_updating_what_was_overwritten(table: LakeTable) -> None:
    theirs = [row(5, "theirs"), row(6, "theirs")]
    batch = [row(5, "mine"), row(12, "mine"), row(1, "mine", "b")]
    overtaken(table, "upsert", batch, lambda: table.ingest("insert_overwrite", theirs))
    table.check_now([*batch[:2], theirs[1], *(each for each in expected(batch[2]) if each["part"] == "b")])


# --- reverts --------------------------------------------------------------------------------


def test_reverting_a_clustering(table: LakeTable) -> None:
    clustering = Clustering(table.table, "part=a", outputs=3)
    batch = [row(5, "mine"), row(12, "mine")]
    result = overtaken_early(table, "upsert", batch, clustering.commit, on_rewrite="revert")
    assert (result["rebases"], result["action"]) == (0, "commit")
    assert table.table.timeline().find(clustering.instant) is None
    delete_reverted_files(table.table, after_seconds=0.0)
    table.check_now(expected(*batch))


def test_a_clustering_is_rebased_onto_where_something_else_was_lost_too(table: LakeTable) -> None:
    clustering = Clustering(table.table, "part=a", outputs=3)

    def others() -> None:
        clustering.commit()
        table.ingest("upsert", [row(2, "theirs", "b")])

    batch = [row(5, "mine"), row(1, "mine", "b")]
    result = overtaken_early(table, "upsert", batch, others, on_rewrite="revert")
    assert result["rebases"] == 1
    table.check_now(expected(row(2, "theirs", "b"), *batch))


def test_what_it_was_merged_on_is_reverted(table: LakeTable) -> None:
    opened, theirs = table.table, [row(5, "theirs"), row(6, "theirs")]
    described = IngestJob.of(table.location, on_rewrite="revert")
    writer = begin_write(opened, operation="UPSERT", settings=WriteSettings(policy=described.settings.policy))
    other = Ingestion(described, opened, writer, ArrowRows.of(described, opened, table.arrow(theirs)))
    Clustering(table.table, "part=a", outputs=3).commit()

    def revert() -> None:
        with writer:
            other.run()

    batch = [row(5, "mine"), row(12, "mine"), row(50, "mine")]
    assert overtaken(table, "upsert", batch, revert)["rebases"] == 1
    delete_reverted_files(table.table, after_seconds=0.0)
    table.check_now(expected(theirs[1], *batch))


# --- priorities -----------------------------------------------------------------------------


def test_giving_way_to_a_writer_of_higher_priority(table: LakeTable) -> None:
    high = begin_write(
        table.table, operation="UPSERT", settings=WriteSettings(priority=PRIORITIES["ingestion"])
    )
    groups = [FileGroupId("part=b", base_file.file_id) for base_file in high.view.base_files("part=b")]
    high.plan(groups)
    low: dict[str, Any] = {"priority": PRIORITIES["backfill"]}
    batch = table.arrow([row(1, "mine", "b")])
    storage = _Creating(table.location)
    seen = HudiTable(storage, table.table.config)
    for policy in ({"on_higher_priority": "fail"}, {"yield_timeout": 0.2}):
        with high_goes_on(table), pytest.raises(HigherPriorityWriteError, match=high.instant):
            ingest_arrow(seen, batch, **low, **policy)
        assert storage.created == []  # the write has written no row in vain
    high.abort()
    assert ingest_arrow(seen, batch, **low)["rows_updated"] == 1
    assert len(storage.created) == 1
    table.check_now(expected(row(1, "mine", "b")))


class _Creating(Storage):
    """A storage that records every data file that is begun."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.created: list[str] = []

    def create(self, path: str) -> BinaryIO:
        self.created.append(path)
        return super().create(path)


@contextmanager
def high_goes_on(table: LakeTable) -> Any:
    """Check that the write in the block leaves no file, while a write of higher priority continues."""
    before = [instant.file_name for instant in table.table.timeline().pending()]
    yield
    assert [instant.file_name for instant in table.table.timeline().pending()] == before


def test_waiting_for_a_writer_of_higher_priority(table: LakeTable) -> None:
    high = begin_write(
        table.table, operation="UPSERT", settings=WriteSettings(priority=PRIORITIES["ingestion"])
    )
    high.plan([base_file.file_group for base_file in high.view.base_files("part=b")])
    ended = threading.Timer(0.3, high.abort)
    ended.start()
    result = ingest_arrow(table.location, table.arrow([row(1, "mine", "b")]), priority=PRIORITIES["backfill"])
    ended.join()
    assert result["instant"] > high.instant
    table.check_now(expected(row(1, "mine", "b")))
