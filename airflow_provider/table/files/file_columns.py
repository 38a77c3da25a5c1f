"""The columns of one base file as the table's columns. Every reader of rows uses this module.

A base file keeps the columns and types that the table had when it was written. A reader reads the file with
its own columns, and turns them into the table's as Hudi's readers do: it matches them by name, or by id where
the table has schema on read. A column that the file lacks is null, or its value is in the folder's name.
:mod:`~airflow_provider.table.schema.conversion` converts the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.schema import META_COLUMNS, Origin, Origins, converted
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from airflow_provider.table.schema import TableSchema


@dataclass(frozen=True)
class FileColumns:
    """How the columns of a base file become the table's.

    :param location: the file, for messages.
    :param table: the table's columns, without Hudi's own.
    :param origins: the origins of columns that have another name in the file, or are not in it.
    :param dictionaries: string columns of the file that stay dictionaries.
    """

    location: str
    table: pa.Schema
    origins: Origins = field(default_factory=dict)
    dictionaries: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, storage: Storage, path: str, schema: TableSchema, *, dictionaries: frozenset[str] = frozenset()
    ) -> FileColumns:
        """The columns of one file.

        :param storage: the table's storage.
        :param path: path relative to the table.
        :param schema: the table's schema.
        :param dictionaries: string columns of the file that stay dictionaries.
        """
        return cls(storage.url(path), schema.columns, schema.origins(path) or {}, dictionaries)

    def stored(self, file: pa.Schema, columns: Sequence[str] | None = None) -> list[str]:
        """The columns of the file that have to be read.

        :param file: the file's columns.
        :param columns: columns of the table, with Hudi's own; all when None.
        """
        there = set(file.names)
        named = (self._origin(name).name for name in self._asked(columns))
        return [name for name in named if name is not None and name in there]

    def bring(self, rows: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of the file as rows of the table.

        :param rows: rows with at least the columns that :meth:`stored` returns.
        :param columns: columns of the table, with Hudi's own; all when None. Hudi's own come as they are
            stored.
        :raises UnsupportedTableError: when a column's type cannot become the table's.
        """
        asked = self._asked(columns)
        return pa.Table.from_arrays([self._column(rows, name) for name in asked], names=asked)

    def is_same(self, file: pa.Schema, columns: Sequence[str] | None = None) -> bool:
        """Whether no column has to be converted, so that a reader that matches by name reads the same rows.

        :param file: the file's columns.
        :param columns: columns of the table; all when None.
        """
        if self.origins:
            return False
        found = ((file.get_field_index(name), name) for name in self._asked(columns))
        return all(
            position < 0
            or name in META_COLUMNS
            or _same(file.field(position).type, self.table.field(name).type)
            for position, name in found
        )

    def _asked(self, columns: Sequence[str] | None) -> list[str]:
        return [*META_COLUMNS, *self.table.names] if columns is None else list(columns)

    def _origin(self, name: str) -> Origin:
        return self.origins.get(name) or Origin(name)

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
        kind = pa.string() if name in META_COLUMNS else self.table.field(name).type
        origin = self._origin(name)
        position = -1 if origin.name is None else rows.schema.get_field_index(origin.name)
        if position < 0:
            value = converted(pa.array([origin.value], pa.string()), kind)
            return pa.repeat(value[0], rows.num_rows)
        found = rows.column(position)
        if name in META_COLUMNS or (origin.name in self.dictionaries and kind == pa.string()):
            return found
        try:
            return converted(found, kind, origins=origin.inner)
        except pa.ArrowException as error:
            raise UnsupportedTableError(
                f"base file {self.location}: column {origin.name!r} is {found.type}, and {kind} in the table "
                f"as {name!r}, which it cannot be read as: {error}",
                location=self.location,
                column=name,
            ) from error


def _same(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of these types are the same, apart from names of inner fields and nullability."""
    if pa.types.is_struct(kind) and pa.types.is_struct(stored):
        names = [child.name for child in kind]
        return names == [child.name for child in stored] and all(
            _same(one.type, other.type) for one, other in zip(stored, kind, strict=True)
        )
    if pa.types.is_list(kind) and pa.types.is_list(stored):
        return _same(stored.value_type, kind.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(stored):
        return _same(stored.key_type, kind.key_type) and _same(stored.item_type, kind.item_type)
    return bool(stored.equals(kind))
