"""The rows of base files as a pyarrow dataset. Files may have other columns than the table."""

from __future__ import annotations

import abc
import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from airflow_provider.table.files import FileColumns
from airflow_provider.table.schema import TableSchema, with_meta_columns
from airflow_provider.table.skipping import has_nan, named_columns
from airflow_provider.table.storage import Storage

_AT_ONCE = 8  # footers that are read at the same time


def rows_of(
    storage: Storage,
    paths: Sequence[str],
    schema: TableSchema,
    *,
    meta_columns: bool = False,
    has_never_changed: bool = False,
    where: pc.Expression | None = None,
    count: Callable[[], int | None] | None = None,
) -> ds.Dataset:
    """The rows of base files, in the table's columns.

    :param storage: the table's storage.
    :param paths: the files' paths, relative to the table.
    :param schema: the table's schema.
    :param meta_columns: whether Hudi's own columns come first.
    :param has_never_changed: whether all files are known to have the table's columns. Otherwise a scan reads
        the footers first.
    :param where: keeps the rows for which it is true; all when None.
    :param count: returns the number of rows in the files, if it can be known without opening them.
    """
    columns = with_meta_columns(schema.columns) if meta_columns else schema.columns
    if not paths:
        nothing = ds.dataset(columns.empty_table())
        return nothing if where is None else nothing.filter(where)
    filesystem, base = storage.arrow()
    files = ds.dataset(
        [f"{base}/{path}" for path in paths], schema=columns, format="parquet", filesystem=filesystem
    )
    if count is not None:
        files = CountedFiles(list(files.get_fragments()), columns, files.format, filesystem)
        files.known_count = count
    if has_never_changed and (where is None or not has_nan(where)):
        return files if where is None else files.filter(where)
    return EvolvedRows(files, [FileColumns.of(storage, path, schema) for path in paths], where)


class CountedFiles(ds.FileSystemDataset):  # type: ignore[misc]  # as far as pyarrow's stubs go
    """Base files whose rows are counted without opening the files, if possible.

    :ivar known_count: returns the number of rows; None if the files have to be opened.
    """

    known_count: Callable[[], int | None] = staticmethod(lambda: None)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """See :meth:`pyarrow.dataset.Dataset.count_rows`."""
        known = self.known_count() if filter is None else None
        return int(super().count_rows(filter, **options)) if known is None else known


class MadeRows(ds.Dataset, abc.ABC):  # type: ignore[misc]  # as far as pyarrow's stubs go
    """Rows that a scan converts or merges, because the files do not hold them as a query sees them.

    Arrow makes the rows in one of its threads. Whatever makes them must not wait for Arrow's other threads:
    on a machine with one core there is none that could do the work.

    :param filter: keeps the rows for which it is true; all when None.
    """

    def __init__(self, filter: pc.Expression | None = None) -> None:
        self._filter = filter

    @property
    def partition_expression(self) -> pc.Expression:
        """The condition that all rows meet: always true, because nothing is known about them."""
        return pc.scalar(True)

    @property
    @abc.abstractmethod
    def files(self) -> list[str]:
        """Paths of the files that are read."""

    @abc.abstractmethod
    def filter(self, expression: pc.Expression) -> MadeRows:
        """The rows for which an expression is true; see :meth:`pyarrow.dataset.Dataset.filter`."""

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """See :meth:`pyarrow.dataset.Dataset.scanner`."""
        filter = self._both(filter)
        skips = filter is None or not has_nan(filter)
        needed = self._needed(columns, filter)
        schema = pa.schema([self.schema.field(name) for name in needed])
        rows = self._batches(schema, filter if skips else None)
        return ds.Scanner.from_batches(rows, schema=schema, columns=columns or None, filter=filter, **options)

    def get_fragments(self, filter: pc.Expression | None = None) -> Any:
        """Refused, because a fragment would hold its file's own rows.

        :raises NotImplementedError: always.
        """
        raise NotImplementedError(
            "the files hold other rows, or columns, than the table; scan the dataset instead"
        )

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Refused; see :meth:`get_fragments`."""
        raise NotImplementedError("select columns when the dataset is scanned instead")

    def join(self, *arguments: Any, **options: Any) -> Any:
        """Refused; see :meth:`get_fragments`."""
        raise NotImplementedError("join what to_table() gives instead")

    join_asof = join

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        """See :meth:`pyarrow.dataset.Dataset.sort_by`; holds all rows in memory."""
        return ds.InMemoryDataset(self.to_table(**options).sort_by(sorting))

    @abc.abstractmethod
    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The rows in these columns. An implementation may skip rows that the filter leaves out."""

    def _both(self, filter: pc.Expression | None) -> pc.Expression | None:
        if filter is None or self._filter is None:
            return self._filter if filter is None else filter
        return self._filter & filter

    def _needed(
        self, columns: Sequence[str] | Mapping[str, pc.Expression] | None, filter: pc.Expression | None
    ) -> list[str]:
        names = self.schema.names
        if columns is None:
            return list(names)
        asked = set(columns) if not isinstance(columns, Mapping) else set()
        for expression in columns.values() if isinstance(columns, Mapping) else ():
            asked.update(named_columns(expression, names))
        if filter is not None:
            asked.update(named_columns(filter, names))
        # A scan without columns still counts rows.
        return [name for name in names if name in asked] or names[:1]


def filtered(rows: pa.Table, filter: pc.Expression) -> pa.Table:
    """The rows for which an expression is true, found in this thread alone.

    :param rows: the rows.
    :param filter: the expression.
    """
    return ds.InMemoryDataset(rows).scanner(filter=filter, use_threads=False).to_table()


Batches = Generator[list[pa.RecordBatch], None, None]
"""Makes the rows of a part of a scan, some record batches at a time."""


def ahead(parts: Iterable[Batches], most_begun: int) -> Iterator[pa.RecordBatch]:
    """The rows of some parts, in order; threads of this scan make the next rows of several parts meanwhile.

    :param parts: the parts.
    :param most_begun: how many of them may have begun and not ended.
    """
    if most_begun < 2:
        yield from itertools.chain.from_iterable(itertools.chain.from_iterable(parts))
        return
    left, begun = iter(parts), deque[tuple[Batches, Future[list[pa.RecordBatch] | None]]]()
    threads = min(most_begun, os.cpu_count() or 1)
    with ExitStack() as stack, ThreadPoolExecutor(threads, "scan") as pool:
        while True:
            for part in itertools.islice(left, most_begun - len(begun)):
                stack.callback(part.close)  # if the caller ends early, when no thread is in it any more
                begun.append((part, pool.submit(next, part, None)))
            if not begun:
                return
            part, made = begun.popleft()
            while (batches := made.result()) is not None:
                made = pool.submit(next, part, None)
                yield from batches


class EvolvedRows(MadeRows):
    """Rows of files that may have other columns and types than the table.

    Arrow's reader matches columns by name and chooses types itself, so it reads only files with exactly the
    table's columns. A scan converts any other file to the table's columns, row group by row group.

    :param files: the files as a pyarrow dataset.
    :param columns: for each file, how its columns become the table's.
    :param filter: keeps the rows for which it is true; all when None.
    """

    def __init__(
        self, files: ds.Dataset, columns: Sequence[FileColumns], filter: pc.Expression | None = None
    ) -> None:
        super().__init__(filter)
        self._files = files
        self._columns = columns

    def __reduce__(self) -> Any:
        return EvolvedRows, (self._files, self._columns, self._filter)

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return self._files.schema

    @property
    def files(self) -> list[str]:
        """Paths of the files."""
        found: list[str] = self._files.files
        return found

    def filter(self, expression: pc.Expression) -> EvolvedRows:
        """The rows for which an expression is true; see :meth:`pyarrow.dataset.Dataset.filter`."""
        return EvolvedRows(self._files, self._columns, self._both(expression))

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """See :meth:`pyarrow.dataset.Dataset.scanner`."""
        both = self._both(filter)
        if (both is None or not has_nan(both)) and all(self._is_same):
            return self._files.scanner(columns=columns, filter=both, **options)
        return super().scanner(columns, filter, **options)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """See :meth:`pyarrow.dataset.Dataset.count_rows`."""
        if self._both(filter) is None:  # whatever columns the files have, they have these rows
            return int(self._files.count_rows(**options))
        return int(super().count_rows(filter, **options))

    @cached_property
    def _fragments(self) -> list[Any]:
        return list(self._files.get_fragments())

    @cached_property
    def _is_same(self) -> list[bool]:
        with ThreadPoolExecutor(_AT_ONCE, "footers") as pool:
            stored = pool.map(lambda fragment: fragment.physical_schema, self._fragments)
            names = self.schema.names
            return [each.is_same(file, names) for each, file in zip(self._columns, stored, strict=True)]

    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        names = schema.names

        def part(fragment: Any, columns: FileColumns, same: bool) -> Batches:
            if same:
                for batch in fragment.scanner(schema=schema, filter=filter, use_threads=False).to_batches():
                    yield [batch]
                return
            wanted = columns.stored(fragment.physical_schema, names) or fragment.physical_schema.names[:1]
            for batch in fragment.to_batches(columns=wanted, use_threads=False):
                brought = columns.bring(pa.Table.from_batches([batch]), names)
                yield pa.Table.from_arrays(brought.columns, schema=schema).to_batches()

        parts = map(part, self._fragments, self._columns, self._is_same)
        return ahead(parts, min(len(self._fragments), os.cpu_count() or 1))
