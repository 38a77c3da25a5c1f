"""Sequences of operations, compared with a dict; each engine runs them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.ingestion_contract.lake import KIB, Lake, LakeTable

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string(), "p": pa.string(), "v": pa.string(), "ts": pa.int64()})
Key = tuple[Any, ...]
OPERATIONS = (
    ["upsert"] * 5 + ["delete"] * 3 + ["insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"]
)


class Model:
    """The expected rows of the table, by partition and key."""

    def __init__(self, key: list[str], partitioned: bool, ordered: bool) -> None:
        self.key, self.partitioned, self.ordered = key, partitioned, ordered
        self.rows: dict[Key, dict[str, Any]] = {}

    def key_of(self, row: dict[str, Any]) -> Key:
        return (row["p"] if self.partitioned else None, *(row[name] for name in self.key))

    def apply(self, operation: str, batch: list[dict[str, Any]]) -> None:
        if operation == "insert_overwrite_table":
            self.rows.clear()
        if operation == "insert_overwrite":
            touched = {self.key_of(row)[0] for row in batch}
            self.rows = {key: row for key, row in self.rows.items() if key[0] not in touched}
        for row in batch:
            key = self.key_of(row)
            old = self.rows.get(key)
            if self.ordered and old is not None and row["ts"] < old["ts"]:
                continue
            if operation == "delete":
                self.rows.pop(key, None)
            else:
                self.rows[key] = row


@pytest.mark.parametrize("seed", range(4))
def test_operations_one_after_the_other(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    key = [["a"], ["a", "b"]][seed % 2]
    partitioned, ordered = seed != 1, seed in (0, 3)
    table = lake.create(
        SCHEMA,
        record_key=key,
        partition_by=["p"] if partitioned else [],
        ordering_field="ts" if ordered else None,
    )
    model = Model(key, partitioned, ordered)
    for step in range(10):
        operation = "bulk_insert" if step == 0 else rng.choice(OPERATIONS)
        batch = batch_of(rng, model, operation, step)
        if batch:
            model.apply(operation, in_effect(batch, model, operation))
            # Tiny files, so that partitions soon have several file groups.
            small = {"target_file_size": 12 * KIB, "small_file_limit": rng.choice([0, 8 * KIB])}
            table.ingest(operation, batch, **small)
            compare(table, model, f"seed {seed}, step {step}: {operation}")
    table.check()


def batch_of(rng: random.Random, model: Model, operation: str, step: int) -> list[dict[str, Any]]:
    count = rng.choice([1, 20, 400])
    batch = [
        {
            "a": rng.randrange(300),
            "b": rng.choice(["x", "y", "ü"]),
            "p": rng.choice(["p", "q/r", None]),
            "v": f"{step}.{n}" + rng.randbytes(8).hex(),
            "ts": rng.randrange(5),
        }
        for n in range(count)
    ]
    if operation in ("upsert", "delete"):
        return batch
    # These operations do not look keys up: an existing key, or a key that comes twice, would be there twice.
    known = set(model.rows) if operation in ("insert", "bulk_insert") else set()
    return list({model.key_of(row): row for row in batch if model.key_of(row) not in known}.values())


def in_effect(batch: list[dict[str, Any]], model: Model, operation: str) -> list[dict[str, Any]]:
    # Of a batch only the latest version of a record counts, whatever is in the table.
    latest: dict[Key, dict[str, Any]] = {}
    for row in batch:
        old = latest.get(model.key_of(row))
        if old is None or not model.ordered or row["ts"] >= old["ts"]:
            latest[model.key_of(row)] = row
    return list(latest.values())


def compare(table: LakeTable, model: Model, when: str) -> None:
    rows = table.rows()
    assert rows == sorted(model.rows.values(), key=lambda row: repr({n: row[n] for n in SCHEMA.names})), when
