"""Rows with row ids as a pyarrow dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from airflow_provider.table.reading.row_ids import ROW_ID_COLUMNS, RowIdMaker
from airflow_provider.table.reading.rows import MadeRows
from airflow_provider.table.skipping import named_columns


class RowsWithIds(MadeRows):
    """Rows with the virtual columns after their own.

    :param rows: the rows, with Hudi's columns.
    :param maker: makes the virtual columns.
    :param own: the other columns of the result.
    :param filter: keeps the rows for which it is true; all when None.
    """

    def __init__(
        self, rows: ds.Dataset, maker: RowIdMaker, own: Sequence[str], filter: pc.Expression | None = None
    ) -> None:
        super().__init__(filter)
        self._rows = rows
        self._maker = maker
        self._own = tuple(own)

    def __reduce__(self) -> Any:
        return RowsWithIds, (self._rows, self._maker, self._own, self._filter)

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return pa.schema([*(self._rows.schema.field(name) for name in self._own), *ROW_ID_COLUMNS])

    @property
    def files(self) -> list[str]:
        """Paths of the files."""
        return list(getattr(self._rows, "files", []))

    def filter(self, expression: pc.Expression) -> RowsWithIds:
        """The rows for which an expression is true; see :meth:`pyarrow.dataset.Dataset.filter`."""
        return RowsWithIds(self._rows, self._maker, self._own, self._both(expression))

    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        virtual = set(ROW_ID_COLUMNS.names)
        more = self._maker.needs if virtual & set(schema.names) else ()
        names = list(dict.fromkeys([*(name for name in schema.names if name not in virtual), *more]))
        asks = filter is not None and not virtual & set(named_columns(filter, self.schema.names))
        scan = self._rows.scanner(names, filter if asks else None, use_threads=False)
        for batch in scan.to_batches():
            yield from self._maker.extended(pa.Table.from_batches([batch]), schema).to_batches()
