"""The rows of a merge-on-read snapshot as a pyarrow dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.rows import Batches, MadeRows, ahead, filtered
from airflow_provider.table.schema import with_meta_columns

_MOST_BEGUN = 4  # each further slice leaves the others less memory for their log files


class MergedRows(MadeRows):
    """Rows of file slices. A scan gives one slice after the other, and merges the next slices meanwhile.

    :param reader: reads the slices.
    :param slices: the snapshot's slices.
    :param meta_columns: whether Hudi's own columns come first.
    :param filter: keeps the rows for which it is true; all when None.
    """

    def __init__(
        self,
        reader: SliceReader,
        slices: Sequence[FileSlice],
        *,
        meta_columns: bool = False,
        filter: pc.Expression | None = None,
    ) -> None:
        super().__init__(filter)
        self._reader = reader
        self._slices = tuple(slices)
        self._meta_columns = meta_columns

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        columns = self._reader.schema.columns
        return with_meta_columns(columns) if self._meta_columns else columns

    @property
    def files(self) -> list[str]:
        """Paths of the base files and log files, relative to the table."""
        return [path for each in self._slices for path in each.paths]

    def filter(self, expression: pc.Expression) -> MergedRows:
        """The rows for which an expression is true; see :meth:`pyarrow.dataset.Dataset.filter`."""
        return MergedRows(
            self._reader, self._slices, meta_columns=self._meta_columns, filter=self._both(expression)
        )

    def __reduce__(self) -> Any:
        raise TypeError("rows of log files are merged where they are read; take to_table() elsewhere")

    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        begun = min(len(self._slices), _MOST_BEGUN)
        memory = self._reader.memory
        share = None if memory is None else memory // max(begun, 1)
        reader = replace(self._reader, memory=share, use_threads=False)

        def part(file_slice: FileSlice) -> Batches:
            for rows in reader.rows(file_slice, schema.names):
                if filter is not None:
                    rows = filtered(rows, filter)
                columns = [rows[field.name].cast(field.type) for field in schema]
                yield pa.Table.from_arrays(columns, schema=schema).to_batches()

        return ahead(map(part, self._slices), begun)
