"""Every operation, read back by several readers; each engine runs them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.table import snapshot
from tests.ingestion_contract.lake import Lake, LakeTable

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "value": pa.int64(), "ts": pa.int64()})


def row(id_: str, value: int, part: str = "a", ts: int | None = 1) -> dict[str, Any]:
    return {"id": id_, "part": part, "value": value, "ts": ts}


@pytest.fixture
def trips(lake: Lake) -> LakeTable:
    """A table with two partitions, three rows and an ordering column."""
    table = lake.create(SCHEMA, partition_by=["part"], ordering_field="ts")
    table.ingest("upsert", [row("1", 10), row("2", 20), row("3", 30, "b")])
    return table


START = [row("1", 10), row("2", 20), row("3", 30, "b")]


def counts(result: dict[str, Any]) -> tuple[int, int, int]:
    return result["rows_inserted"], result["rows_updated"], result["rows_deleted"]


def test_the_first_write(trips: LakeTable) -> None:
    trips.check(START)
    assert {path: len(found) for path, found in trips.files().items()} == {"part=a": 1, "part=b": 1}


def test_upsert_replaces_and_adds(trips: LakeTable) -> None:
    result = trips.ingest("upsert", [row("1", 11, ts=2), row("4", 40, "c"), row("5", 50)])
    assert counts(result) == (2, 1, 0)
    assert result["partitions"] == ["part=a", "part=c"]
    assert result["action"] == "commit"
    assert result["files_written"] == 2
    trips.check([row("1", 11, ts=2), row("2", 20), row("3", 30, "b"), row("4", 40, "c"), row("5", 50)])


def test_rows_that_are_only_copied_keep_their_commit(trips: LakeTable) -> None:
    before = {r["id"]: r for r in snapshot(trips.table, meta_columns=True).to_table().to_pylist()}
    result = trips.ingest("upsert", [row("1", 11, ts=2)])
    after = {r["id"]: r for r in snapshot(trips.table, meta_columns=True).to_table().to_pylist()}
    assert after["1"]["_hoodie_commit_time"] == result["instant"]
    kept = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")
    assert [after["2"][name] for name in kept] == [before["2"][name] for name in kept]
    assert after["2"]["_hoodie_file_name"] == after["1"]["_hoodie_file_name"]
    assert after["3"] == before["3"]


def test_a_late_row_loses_and_equals_win(trips: LakeTable) -> None:
    late = [row("1", -1, ts=0), row("2", 21, ts=1), row("3", -1, "b", ts=None)]
    assert counts(trips.ingest("upsert", late)) == (0, 1, 0)
    trips.check([row("1", 10), row("2", 21), row("3", 30, "b")])


def test_a_write_that_changes_nothing_is_a_commit_without_files(trips: LakeTable) -> None:
    files = trips.files()
    result = trips.ingest("upsert", [row("1", -1, ts=0)])
    assert (counts(result), result["files_written"], result["partitions"]) == ((0, 0, 0), 0, [])
    assert trips.files() == files
    trips.check(START)


def test_the_latest_of_a_batch_counts(trips: LakeTable) -> None:
    batch = [row("1", n, ts=5 + n % 3) for n in range(100)] + [row("9", n, ts=7) for n in range(50)]
    assert counts(trips.ingest("upsert", batch)) == (1, 1, 0)
    # Of 5, 6 and 7 the 7 wins; of equal values the last row wins.
    trips.check([row("1", 98, ts=7), row("9", 49, ts=7), *START[1:]])


def test_without_an_ordering_column_the_last_one_counts(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    table.ingest("upsert", [row("1", 1, ts=9), row("1", 2, ts=3)])
    table.check([row("1", 2, ts=3)])
    table.ingest("upsert", [row("1", 3, ts=1)])
    table.check([row("1", 3, ts=1)])


def test_insert_does_not_look_keys_up(trips: LakeTable) -> None:
    assert counts(trips.ingest("insert", [row("1", 99), row("1", 98), row("6", 60, "b")])) == (3, 0, 0)
    trips.check([*START, row("1", 99), row("1", 98), row("6", 60, "b")])
    assert all(len(found) == 1 for found in trips.files().values()), "small file groups are filled"


def test_bulk_insert_opens_new_file_groups(trips: LakeTable) -> None:
    assert counts(trips.ingest("bulk_insert", [row("7", 70), row("8", 80, "c")])) == (2, 0, 0)
    trips.check([*START, row("7", 70), row("8", 80, "c")])
    assert {path: len(found) for path, found in trips.files().items()} == {
        "part=a": 2,
        "part=b": 1,
        "part=c": 1,
    }


def test_delete_needs_the_key_and_the_partition_only(trips: LakeTable) -> None:
    gone = [{"id": "1", "part": "a"}, {"id": "3", "part": "a"}, {"id": "x", "part": "nowhere"}]
    result = trips.ingest("delete", gone)
    assert counts(result) == (0, 0, 1)
    assert result["partitions"] == ["part=a"]
    trips.check([row("2", 20), row("3", 30, "b")])


def test_a_late_delete_loses(trips: LakeTable) -> None:
    batch = [{"id": "1", "part": "a", "ts": 0}, {"id": "2", "part": "a", "ts": 1}]
    assert counts(trips.ingest("delete", batch)) == (0, 0, 1)
    trips.check([row("1", 10), row("3", 30, "b")])


def test_a_file_group_can_become_empty_and_be_filled_again(trips: LakeTable) -> None:
    trips.ingest("delete", [row("1", 0), row("2", 0)])
    trips.check([row("3", 30, "b")])
    trips.ingest("upsert", [row("2", 22)])
    trips.check([row("2", 22), row("3", 30, "b")])


def test_deleting_what_is_not_there_is_a_commit_without_files(trips: LakeTable) -> None:
    result = trips.ingest("delete", [{"id": "nobody", "part": "a"}])
    assert (counts(result), result["files_written"]) == ((0, 0, 0), 0)
    trips.check(START)


def test_insert_overwrite_replaces_the_touched_partitions(trips: LakeTable) -> None:
    result = trips.ingest("insert_overwrite", [row("8", 80), row("9", 90, "c")])
    assert result["action"] == "replacecommit"
    assert counts(result) == (2, 0, 0)
    trips.check([row("8", 80), row("9", 90, "c"), row("3", 30, "b")])


def test_insert_overwrite_table_replaces_everything(trips: LakeTable) -> None:
    result = trips.ingest("insert_overwrite_table", [row("8", 80)])
    assert result["action"] == "replacecommit"
    trips.check([row("8", 80)])
    trips.ingest("upsert", [row("3", 31, "b"), row("8", 81, ts=2)])
    trips.check([row("3", 31, "b"), row("8", 81, ts=2)])


def test_a_key_is_another_one_in_another_partition(trips: LakeTable) -> None:
    trips.ingest("upsert", [row("1", 1, "b")])
    trips.check([*START, row("1", 1, "b")])


def test_the_commit_says_what_was_done(trips: LakeTable) -> None:
    result = trips.ingest(
        "upsert", [row("1", 11, ts=2), row("5", 50)], txn_id=7, write_id=3, extra_metadata={"who": "me"}
    )
    timeline = trips.table.timeline()
    instant = timeline.find(result["instant"])
    assert instant is not None
    metadata = timeline.commit_metadata(instant)
    assert metadata.operation_type == "UPSERT"
    assert {"txn_id": "7", "write_id": "3", "who": "me"}.items() <= metadata.extra_metadata.items()
    assert metadata.extra_metadata["schema"] == trips.table.config.create_schema
    (stat,) = metadata.write_stats
    assert (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes) == (3, 1, 1, 0)
    assert stat.prev_commit == timeline.commits()[0].requested_time
    assert stat.prev_base_file is not None
    assert stat.prev_base_file.startswith(stat.file_id)
    assert stat.file_size == stat.total_write_bytes == result["bytes_written"]
    assert stat.path.startswith(f"part=a/{stat.file_id}_")


def test_a_second_try_finds_what_the_first_did(trips: LakeTable) -> None:
    first = trips.ingest("upsert", [row("5", 50)], operation_key="dag/task/1")
    again = trips.ingest("upsert", [row("5", 51, ts=9)], operation_key="dag/task/1")
    assert again == first | {"already_committed": True}
    trips.check([*START, row("5", 50)])


def test_without_partitions(lake: Lake) -> None:
    table = lake.create(SCHEMA, ordering_field="ts")
    table.ingest("bulk_insert", [row("1", 1), row("2", 2, "b")])
    result = table.ingest("upsert", [row("2", 22, ts=2), row("3", 3)])
    assert result["partitions"] == [""]
    table.ingest("delete", [{"id": "1"}])
    table.check([row("2", 22, ts=2), row("3", 3)])
    table.ingest("insert_overwrite", [row("4", 4)])
    table.check([row("4", 4)])
