"""The versions of records in a slice's log files: in memory, and above a limit in a temporary file.

A hash of the record key divides the versions in the file into buckets, and some buckets together are a part
that memory holds. All versions of a record are in one part, so a reader merges one part after the other.
Hudi's readers keep a map of the versions for this, and move records of it to the disk
(``ExternalSpillableMap``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.table.hudi_options import OPTIONS, HudiOptions
from airflow_provider.table.java_hash import java_hashes
from airflow_provider.table.merge_semantics import Mask
from airflow_provider.table.properties import COMPACTION_MEMORY, MERGE_MEMORY, TableConfig
from airflow_provider.table.record_merge import Batch
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import temporary_storage_full_errors

_RECORD_KEY = META_COLUMNS[2]

_COPIES = 2  # a merge holds the versions twice: as they are in the blocks, and the newest of each record
_BUCKETS = 256  # so a part is small enough up to 256 times the memory


def merge_memory(config: TableConfig, *, compacts: bool = False) -> int:
    """The bytes that merges of log files may take in memory (``IOUtils.getMaxMemoryPerCompaction``).

    :param config: the table's configuration.
    :param compacts: whether a compaction merges. Its merges at the same time share the bytes.
    :raises InvalidInputError: when a property is no number of bytes.
    """
    keys = (COMPACTION_MEMORY, MERGE_MEMORY) if compacts else (MERGE_MEMORY,)
    # Only these: a table whose other options are unknown here can be read.
    said = HudiOptions.parse({key: config.raw.get(key) for key in keys}).values
    found: int = next((said[key] for key in keys if key in said), OPTIONS[MERGE_MEMORY].default)
    return found


class Versions(NamedTuple):
    """Versions of records, and which of them end all older versions."""

    batch: Batch
    ended: Mask

    @property
    def nbytes(self) -> int:
        """Their bytes in memory."""
        batch = self.batch
        return int(sum(each.nbytes for each in (batch.rows, batch.keys, *batch.ordering)))

    @classmethod
    def of_parts(cls, parts: Sequence[Versions]) -> Versions:
        """Several versions of the same columns, as one."""
        return cls(Batch.of_parts([each.batch for each in parts]), np.concatenate([e.ended for e in parts]))


class LogVersions:
    """Takes the versions of a slice block by block, and gives them back part by part.

    As a context manager it closes the temporary file. The file has no name, so that even a killed process
    leaves nothing behind.

    :param memory: bytes that the merge may take; None for no limit.
    :param keeps_values: whether a version may be a partial update.
    """

    def __init__(self, memory: int | None, *, keeps_values: bool) -> None:
        self._limit = None if memory is None else memory // _COPIES
        self.keeps_values = keeps_values
        self._held: list[Versions] = []
        self._held_bytes = 0
        self._spilled: _SpilledVersions | None = None
        self._open = ExitStack()

    @property
    def is_spilled(self) -> bool:
        """Whether versions are in a temporary file."""
        return self._spilled is not None

    def add(self, versions: Versions) -> None:
        """Add the versions of the next block.

        :param versions: the versions, in the order in which they were written.
        :raises StorageFullError: when there is no room for the temporary file.
        """
        self._held.append(versions)
        self._held_bytes += versions.nbytes
        if self._limit is not None and self._held_bytes > self._limit:
            self._spill()

    def parts(self) -> Iterator[Versions]:
        """All versions, one part after the other. A part has all versions of its records, in their order."""
        if self._spilled is not None:
            if self._held:
                self._spill()
            yield from self._spilled.parts(self._limit or 0)
        elif self._held:
            yield self._taken()

    def _taken(self) -> Versions:
        """The versions in memory, which are held here no longer."""
        held, self._held, self._held_bytes = self._held, [], 0
        return Versions.of_parts(held)

    def _spill(self) -> None:
        versions = self._taken()
        with temporary_storage_full_errors(f"raise {MERGE_MEMORY}"):
            if self._spilled is None:
                self._spilled = self._open.enter_context(_SpilledVersions(versions, self.keeps_values))
            self._spilled.write(versions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


class _SpilledVersions:
    """A temporary Arrow IPC file of versions, whose record batches each have versions of one bucket.

    :param like: versions with the columns of all that will be written.
    :param keeps_values: whether a version may be a partial update.
    """

    def __init__(self, like: Versions, keeps_values: bool) -> None:
        self._names = like.batch.rows.column_names
        self._key = self._names.index(_RECORD_KEY)
        self._ordering = len(like.batch.ordering)
        self._partial = self._names if keeps_values else []
        # By bucket the numbers of its record batches, and their bytes.
        self._batches: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]
        self._written = 0
        self._file = tempfile.TemporaryFile(prefix="log-versions-")  # noqa: SIM115 - __exit__ closes it
        schema = self._columns(like).schema
        self._writer = pa.ipc.new_file(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, versions: Versions) -> None:
        """Append versions, which are newer than those before.

        :param versions: the versions.
        """
        buckets = _buckets(versions.batch.keys)
        order = np.argsort(buckets, kind="stable")
        columns = self._columns(versions).take(pa.array(order))
        ends = np.searchsorted(buckets[order], np.arange(_BUCKETS + 1))
        for bucket, (begin, end) in enumerate(pairwise(ends.tolist())):
            for batch in columns.slice(begin, end - begin).to_batches():
                self._writer.write_batch(batch)
                self._batches[bucket].append((self._written, batch.nbytes))
                self._written += 1

    def parts(self, size: int) -> Iterator[Versions]:
        """The versions, in parts of whole buckets.

        :param size: bytes up to which a part has more than one bucket.
        """
        with temporary_storage_full_errors(f"raise {MERGE_MEMORY}"):
            self._writer.close()
            self._file.flush()
        with pa.ipc.open_file(self._file) as stored:
            for numbers in self._parts(size):
                batches = [stored.get_batch(number) for number in numbers]
                yield self._versions(pa.Table.from_batches(batches))

    def _parts(self, size: int) -> Iterator[list[int]]:
        """The numbers of the record batches of each part, in the order in which they were written."""
        part: list[int] = []
        part_bytes = 0
        for bucket in self._batches:
            bucket_bytes = sum(count for _, count in bucket)
            if part and part_bytes + bucket_bytes > size:
                yield sorted(part)
                part, part_bytes = [], 0
            part += (number for number, _ in bucket)
            part_bytes += bucket_bytes
        if part:
            yield sorted(part)

    def _columns(self, versions: Versions) -> pa.Table:
        """Versions as one table. Its columns have numbers, because a table's column may have any name."""
        batch = versions.batch
        arrays = [
            *batch.rows.columns,
            *batch.ordering,
            pa.array(batch.deletions),
            pa.array(versions.ended),
            *(pa.array(batch.is_unsaid(name)) for name in self._partial),
        ]
        return pa.Table.from_arrays(arrays, [str(number) for number in range(len(arrays))])

    def _versions(self, columns: pa.Table) -> Versions:
        arrays = [each.combine_chunks() for each in columns.columns]
        count = len(self._names)
        rows = pa.Table.from_arrays(arrays[:count], self._names)
        ordering = tuple(arrays[count : count + self._ordering])
        deletes, ended, *unsaid = (
            each.to_numpy(zero_copy_only=False) for each in arrays[count + self._ordering :]
        )
        partial = dict(zip(self._partial, unsaid, strict=True))
        return Versions(Batch(rows, arrays[self._key], ordering, deletes, partial), ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # a full disk, again; the content is not needed any more
            self._file.close()


def _buckets(keys: pa.Array) -> npt.NDArray[np.uint8]:
    """The bucket of each key.

    All keys of a file group of a bucket index have equal last bits of the hash. The product spreads the other
    bits (Knuth's multiplicative hashing).
    """
    spread: npt.NDArray[np.uint32] = java_hashes(keys) * np.uint32(2_654_435_769)
    return (spread >> np.uint32(24)).astype(np.uint8)
