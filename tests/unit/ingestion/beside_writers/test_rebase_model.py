"""Any writes that overtake a write, compared with a dict: the result is that of some serial order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from airflow_provider.ingestion import ingest_arrow
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.services.table_compaction.table_compaction_plan import TableCompactionSettings
from tests.ingestion_contract.interleaving import Clustering, MeetingLock
from tests.ingestion_contract.lake import KIB, Lake, LakeTable

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.string(), "ts": pa.int64()})
PARTS = ("a", "b")
Key = tuple[str, int]
State = dict[Key, dict[str, Any]]

batches = st.dictionaries(
    st.tuples(st.sampled_from(PARTS), st.integers(0, 15)), st.integers(0, 3), min_size=1, max_size=6
)
writes = st.tuples(st.sampled_from(["upsert", "upsert", "delete", "insert_overwrite"]), batches)
clusterings = st.tuples(st.just("cluster"), st.sampled_from(PARTS), st.integers(1, 3))
compactions = st.just(("compact",))
sizes = st.sampled_from([0, 8 * KIB])


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    # Merging again outside the lock, so that a write can be overtaken more than once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider.concurrency.write.committing.SHORT_TURN_SECONDS", -1.0)
        yield


@given(
    table_type=st.sampled_from(["copy_on_write", "merge_on_read"]),
    first=batches,
    second=batches,
    mine=writes,
    others=st.lists(st.one_of(writes, clusterings, compactions), min_size=1, max_size=4),
    ordered=st.booleans(),
    small=sizes,
)
def test_a_write_that_is_overtaken(
    table_type: str,
    first: dict[Key, int],
    second: dict[Key, int],
    mine: tuple[str, dict[Key, int]],
    others: list[tuple[Any, ...]],
    ordered: bool,
    small: int,
) -> None:
    settings: dict[str, Any] = {"target_file_size": 12 * KIB, "small_file_limit": small}
    root = Path(tempfile.mkdtemp())
    try:
        table = Lake(root).create(
            SCHEMA, partition_by=["part"], ordering_field="ts" if ordered else None, table_type=table_type
        )
        table.ingest("upsert", _rows(first, "first"), **settings)
        fresh = {key: ts for key, ts in second.items() if key not in first}
        if fresh:
            table.ingest("bulk_insert", _rows(fresh, "second"), **settings)
        base = _state(table)

        states = [base]

        def overtake(number: int, other: tuple[Any, ...]) -> Callable[[], None]:
            def act() -> None:
                if other[0] == "compact":
                    if table.table.is_merge_on_read:
                        compact_table(table.table, TableCompactionSettings(delta_commits=1))
                elif other[0] == "cluster":
                    partition = f"part={other[1]}"
                    if table.table.view().base_files(partition):
                        Clustering(table.table, partition, outputs=other[2], priority=400).commit()
                else:
                    table.ingest(other[0], _rows(other[1], f"other {number}"), **settings)
                states.append(_state(table))

            return act

        operation, batch = mine
        lock = MeetingLock(*(overtake(number, other) for number, other in enumerate(others)))
        rows = table.arrow(_rows(batch, "mine"))
        result = ingest_arrow(table.location, rows, operation, lock=lock, on_conflict="rebase", **settings)
        note(str(result))
        _check(table, operation, batch, states, ordered)
    finally:
        shutil.rmtree(root)


def _check(
    table: LakeTable, operation: str, batch: dict[Key, int], states: list[State], ordered: bool
) -> None:
    """Check that every record is as after some serial order, in which this write follows its base."""
    found = _state(table)
    table.check_now(list(found.values()))
    before = states[-1]
    if operation == "insert_overwrite":
        touched = {part for part, _ in batch}
        allowed = [{key: row for key, row in state.items() if key[0] not in touched} for state in states[-1:]]
        mine = {key for key in found if found[key]["value"] == "mine"}
        assert mine == set(batch)
        rest = {key: row for key, row in found.items() if key not in mine and key[0] not in touched}
        assert rest == allowed[0]
        return
    for key in found.keys() | before.keys() | batch.keys():
        assert found.get(key) in [_after(state, key, operation, batch, ordered) for state in states[-1:]] or (
            # If the write had no effect on a record it may also have come before the others.
            key in batch
            and found.get(key) == before.get(key)
            and any(_after(state, key, operation, batch, ordered) == state.get(key) for state in states[:-1])
        ), (key, found.get(key), before.get(key))


def _after(
    state: State, key: Key, operation: str, batch: dict[Key, int], ordered: bool
) -> dict[str, Any] | None:
    old = state.get(key)
    if key not in batch or (ordered and old is not None and batch[key] < old["ts"]):
        return old
    return None if operation == "delete" else _rows({key: batch[key]}, "mine")[0]


def _rows(batch: dict[Key, int], value: str) -> list[dict[str, Any]]:
    return [{"id": id_, "part": part, "value": value, "ts": ts} for (part, id_), ts in batch.items()]


def _state(table: LakeTable) -> State:
    rows = table.rows()
    found = {(row["part"], row["id"]): row for row in rows}
    assert len(found) == len(rows), "a record key is there twice"
    return found
