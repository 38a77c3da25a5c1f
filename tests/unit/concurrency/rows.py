"""What the simulated table holds: record keys, each with the names of the writers that upserted it.

A data file is real Parquet with Hudi's columns for commit time and key, so that what the engine reads
in data files (the new keys of concurrent commits) it finds there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider.table.file_groups.view import BaseFile, FileGroupId, FileSystemView
from airflow_provider.table.file_names import base_file_name
from airflow_provider.table.schema.arrow_avro import META_COLUMNS
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import WriteStat

PARTITION = "p"

_COMMIT_TIME, _, _RECORD_KEY, _, _ = META_COLUMNS


@dataclass(frozen=True)
class Row:
    """One record.

    :param commit_time: instant that wrote its newest version.
    :param history: names of the writers that upserted it, in order.
    """

    commit_time: str
    history: tuple[str, ...]


Rows = dict[str, Row]


def write_rows(
    storage: Storage,
    file_id: str,
    instant: str,
    rows: Mapping[str, Row],
    *,
    base: BaseFile | None = None,
    inserts: int = 0,
    write_token: str = "0-0-0",
) -> WriteStat:
    """Write a data file; the write stat says what the commit has to know."""
    path = f"{PARTITION}/{base_file_name(file_id, write_token, instant)}"
    empty = pa.nulls(len(rows), pa.string())
    table = pa.table(
        {
            **dict.fromkeys(META_COLUMNS, empty),
            _COMMIT_TIME: pa.array([row.commit_time for row in rows.values()], pa.string()),
            _RECORD_KEY: pa.array(list(rows), pa.string()),
            "history": pa.array([json.dumps(row.history) for row in rows.values()], pa.string()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(
        table, sink, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
    )
    storage.put(path, sink.getvalue())
    return WriteStat(
        file_id=file_id,
        partition_path=PARTITION,
        path=path,
        prev_commit=base.instant if base and base.file_id == file_id else "null",
        prev_base_file=base.path.rpartition("/")[2] if base else None,
        num_writes=len(rows),
        num_inserts=inserts,
        file_size=len(sink.getvalue()),
    )


def read_rows(storage: Storage, path: str) -> Rows:
    """The rows of a data file."""
    return dict(_decoded(storage.read(path)))


@lru_cache(maxsize=1024)  # everybody reads the same few files again and again
def _decoded(content: bytes) -> Rows:
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    return {
        key: Row(commit_time, tuple(json.loads(history)))
        for commit_time, key, history in zip(
            *(table[name].to_pylist() for name in (_COMMIT_TIME, _RECORD_KEY, "history")), strict=True
        )
    }


def read_snapshot(storage: Storage, view: FileSystemView) -> dict[str, list[str]]:
    """Every key's history in a snapshot; a key that lives twice is an error (C5)."""
    found: dict[str, list[str]] = {}
    for base_file in view.base_files(PARTITION):
        for key, row in read_rows(storage, base_file.path).items():
            assert key not in found, f"key {key} lives in two file groups"
            found[key] = list(row.history)
    return found


def locate(
    storage: Storage, view: FileSystemView, keys: Iterable[str]
) -> dict[BaseFile | None, dict[str, Row]]:
    """The base files that keys live in, with all rows of each; under None the keys that are new."""
    wanted = set(keys)
    found: dict[BaseFile | None, dict[str, Row]] = {}
    for base_file in view.base_files(PARTITION):
        rows = read_rows(storage, base_file.path)
        if wanted & rows.keys():
            found[base_file] = rows
            wanted -= rows.keys()
    if wanted:
        found[None] = {key: Row("", ()) for key in sorted(wanted)}
    return found


def group_of(file_id: str) -> FileGroupId:
    """A file group of the table's one partition."""
    return FileGroupId(PARTITION, file_id)
