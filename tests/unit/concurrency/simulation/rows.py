"""The rows of the simulated table: record keys, each with the names of the writers that upserted it.

A data file is real Parquet with Hudi's columns for commit time and key, which the engine reads (for the new
keys of concurrent commits).
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
from airflow_provider.table.files.log_file import (
    BlockType,
    HeaderKey,
    LogFileName,
    encode_log_block,
    read_log_blocks,
)
from airflow_provider.table.files.markers import MarkerType, write_marker
from airflow_provider.table.schema.arrow_avro import META_COLUMNS, arrow_to_avro, with_meta_columns
from airflow_provider.table.storage.byte_range import ByteRange
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import WriteStat

PARTITION = "p"

_COMMIT_TIME, _, _RECORD_KEY, _, _ = META_COLUMNS
_SCHEMA = arrow_to_avro(with_meta_columns(pa.schema({"history": pa.string()})), "t")


@dataclass(frozen=True)
class Row:
    """One record.

    :param commit_time: the instant that wrote its newest version.
    :param history: the names of the writers that upserted it, in order.
    """

    commit_time: str
    history: tuple[str, ...]


Rows = dict[str, Row]

ADDS = "+"
"""The first sign of a history in a log file: it continues the record's history in the slice below."""


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
    """Write a base file; return the write stat for the commit."""
    path = f"{PARTITION}/{base_file_name(file_id, write_token, instant)}"
    content = _encoded(rows)
    write_marker(storage, instant, path, MarkerType.MERGE if base else MarkerType.CREATE)
    storage.put(path, content)
    return WriteStat(
        file_id=file_id,
        partition_path=PARTITION,
        path=path,
        prev_commit=base.instant if base and base.file_id == file_id else "null",
        prev_base_file=base.path.rpartition("/")[2] if base else None,
        num_writes=len(rows),
        num_inserts=inserts,
        file_size=len(content),
    )


def append_rows(
    storage: Storage, file_id: str, instant: str, rows: Mapping[str, Row], *, write_token: str = "0-0-0"
) -> WriteStat:
    """Write a log file; return the write stat for the commit."""
    name = str(LogFileName(file_id, instant, 1, write_token))
    header: dict[int, str] = {HeaderKey.SCHEMA: _SCHEMA}
    content = encode_log_block(BlockType.PARQUET_DATA, _encoded(rows), instant=instant, header=header)
    write_marker(storage, instant, f"{PARTITION}/{name}", MarkerType.APPEND)
    storage.put(f"{PARTITION}/{name}", content)
    return WriteStat(
        file_id=file_id,
        partition_path=PARTITION,
        path=f"{PARTITION}/{name}",
        prev_commit=instant,
        num_writes=len(rows),
        num_update_writes=len(rows),
        file_size=len(content),
        log_version=1,
        log_files=(name,),
    )


def _encoded(rows: Mapping[str, Row]) -> bytes:
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
    return sink.getvalue()


def read_rows(storage: Storage, path: str) -> Rows:
    """The rows of a base file or log file."""
    content = storage.read(path)
    if LogFileName.parse(path.rpartition("/")[2]):
        (block,) = read_log_blocks(ByteRange(lambda begin, end: content[begin:end], len(content), path))
        content = block.read()
    return dict(_decoded(content))


def read_slice(storage: Storage, view: FileSystemView, base: BaseFile) -> Rows:
    """The rows of the newest file slice of a file group: of its base file, and of its log files."""
    return merged(storage, base.path, log_paths(view, base.file_id))


def merged(storage: Storage, base_path: str | None, paths: Iterable[str]) -> Rows:
    """The rows of a base file, if there is one, and of its log files."""
    rows = {} if base_path is None else read_rows(storage, base_path)
    for path in paths:
        for key, row in read_rows(storage, path).items():
            below = rows.get(key, Row("", ())).history
            adds = row.history[:1] == (ADDS,)
            rows[key] = Row(row.commit_time, (*below, *row.history[1:])) if adds else row
    return rows


def log_paths(view: FileSystemView, file_id: str) -> list[str]:
    """The log files of a slice, in the order in which their instants completed."""
    logs = [each for each in view.log_files(PARTITION) if each.file_id == file_id]
    return [each.path for each in sorted(logs, key=lambda each: view.completed_at(each.instant))]


@lru_cache(maxsize=1024)  # all actors read the same few files again and again
def _decoded(content: bytes) -> Rows:
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    return {
        key: Row(commit_time, tuple(json.loads(history)))
        for commit_time, key, history in zip(
            *(table[name].to_pylist() for name in (_COMMIT_TIME, _RECORD_KEY, "history")), strict=True
        )
    }


def read_snapshot(storage: Storage, view: FileSystemView) -> dict[str, list[str]]:
    """Every key's history in a snapshot; a key in two file groups is an error (C5)."""
    found: dict[str, list[str]] = {}
    bases = {each.file_id: each.path for each in view.base_files(PARTITION)}
    for file_id in sorted(bases.keys() | {each.file_id for each in view.log_files(PARTITION)}):
        for key, row in merged(storage, bases.get(file_id), log_paths(view, file_id)).items():
            assert key not in found, f"key {key} lives in two file groups"
            found[key] = list(row.history)
    return found


def locate(
    storage: Storage, view: FileSystemView, keys: Iterable[str]
) -> dict[BaseFile | None, dict[str, Row]]:
    """The base files that have the keys, each with all its rows; under None the new keys."""
    wanted = set(keys)
    found: dict[BaseFile | None, dict[str, Row]] = {}
    for base_file in view.base_files(PARTITION):
        rows = read_slice(storage, view, base_file)
        if wanted & rows.keys():
            found[base_file] = rows
            wanted -= rows.keys()
    if wanted:
        found[None] = {key: Row("", ()) for key in sorted(wanted)}
    return found


def group_of(file_id: str) -> FileGroupId:
    """A file group of the table's one partition."""
    return FileGroupId(PARTITION, file_id)
