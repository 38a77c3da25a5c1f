"""Rows of 16 columns in eight partitions, and an upsert of a tenth of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PARTITIONS = 8
FILES = 8  # of the source, so that Spark reads them in parallel


@dataclass(frozen=True)
class Workload:
    """What is loaded, as Parquet files.

    :param folder: with ``load`` and ``batch``.
    :param rows: of the first load; a tenth of it is upserted, of which a tenth is new.
    """

    folder: Path
    rows: int

    @classmethod
    def make(cls, folder: Path, rows: int) -> Workload:
        """Lay the rows out."""
        random = np.random.default_rng(42)
        upserted = np.arange(rows, rows + rows // 100)
        upserted = np.concatenate([random.choice(rows, rows // 10 - len(upserted), replace=False), upserted])
        for name, ids in (("load", random.permutation(rows)), ("batch", random.permutation(upserted))):
            (folder / name).mkdir()
            for number, part in enumerate(np.array_split(ids, FILES)):
                at = 1 if name == "load" else 2
                pq.write_table(_rows(part, at, random), folder / name / f"{number}.parquet")
        return cls(folder, rows)

    @property
    def load(self) -> str:
        return str(self.folder / "load")

    @property
    def batch(self) -> str:
        return str(self.folder / "batch")


def _rows(ids: np.ndarray, at: int, random: np.random.Generator) -> pa.Table:
    count = len(ids)
    carriers = np.array(["UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN"])
    names = pc.binary_join_element_wise(
        "n", pc.cast(pa.array(random.integers(0, 50_000, count)), "string"), ""
    )
    return pa.table(
        {
            "id": pc.utf8_lpad(pc.cast(pa.array(ids), "string"), 12, "0"),
            "region": pc.binary_join_element_wise("r", pc.cast(pa.array(ids % PARTITIONS), "string"), ""),
            "at": np.full(count, at, np.int64),
            "amount": random.normal(100, 30, count),
            "rating": random.integers(0, 1000, count),
            "price": random.random(count) * 500,
            "delay": random.normal(10, 30, count),
            "quantity": random.integers(0, 100, count),
            "carrier": carriers[random.integers(0, len(carriers), count)],
            "name": names,
            "day": random.integers(0, 365, count).astype(np.int32),
            "minute": random.integers(0, 1440, count).astype(np.int32),
            "code": random.integers(0, 2**40, count),
            "is_open": random.random(count) < 0.5,
            "weight": random.random(count).astype(np.float32),
            "note": names,
        }
    )
