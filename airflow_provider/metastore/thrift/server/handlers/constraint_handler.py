"""The methods about constraints of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.catalog import Constraint, constraints, get_table
from airflow_provider.metastore.model import CATALOG
from airflow_provider.metastore.thrift.protocol import hive
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import CatalogHandler, plain_name


@dataclass(frozen=True)
class _Kind:
    """Hive's structs for constraints of one kind.

    :param struct: the struct of one column.
    :param name: the struct's field with the constraint's name.
    :param several: the field with all constraints of the kind, in answers and requests.
    :param one_each: whether each column is a constraint of its own.
    """

    struct: Any
    name: str
    several: str
    one_each: bool = True


_KINDS = {
    constraints.PRIMARY_KEY: _Kind(hive.SQLPrimaryKey, "pk_name", "primaryKeys", one_each=False),
    constraints.FOREIGN_KEY: _Kind(hive.SQLForeignKey, "fk_name", "foreignKeys", one_each=False),
    "unique": _Kind(hive.SQLUniqueConstraint, "uk_name", "uniqueConstraints", one_each=False),
    "not_null": _Kind(hive.SQLNotNullConstraint, "nn_name", "notNullConstraints"),
    "default": _Kind(hive.SQLDefaultConstraint, "dc_name", "defaultConstraints"),
    "check": _Kind(hive.SQLCheckConstraint, "dc_name", "checkConstraints"),
}
# Fields that are not stored with a column, because they belong to the table or the constraint.
_OF_TABLE = frozenset(
    {"table_db", "table_name", "catName", "pktable_db", "pktable_name", "fktable_db", "fktable_name"}
)


class ConstraintHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore.
    :param tables: creates tables.
    """

    def __init__(self, metastore: Metastore, tables: CatalogHandler) -> None:
        self._metastore = metastore
        self._tables = tables

    def create_table_with_constraints(self, table: Any, *structs: Sequence[Any] | None) -> None:
        declared = [
            one for kind, of_kind in zip(_KINDS, structs, strict=True) for one in _read(kind, of_kind)
        ]
        self._tables.create_table(
            table, lambda connection, created: constraints.add_constraints(connection, created, declared)
        )

    def create_table_req(self, request: Any) -> None:
        structs = [getattr(request, kind.several) for kind in _KINDS.values()]
        self.create_table_with_constraints(request.table, *structs)

    def add_primary_key(self, request: Any) -> None:
        self._add(constraints.PRIMARY_KEY, request.primaryKeyCols)

    def add_foreign_key(self, request: Any) -> None:
        self._add(constraints.FOREIGN_KEY, request.foreignKeyCols)

    def add_unique_constraint(self, request: Any) -> None:
        self._add("unique", request.uniqueConstraintCols)

    def add_not_null_constraint(self, request: Any) -> None:
        self._add("not_null", request.notNullConstraintCols)

    def add_default_constraint(self, request: Any) -> None:
        self._add("default", request.defaultConstraintCols)

    def add_check_constraint(self, request: Any) -> None:
        self._add("check", request.checkConstraintCols)

    def drop_constraint(self, request: Any) -> None:
        def drop(connection: Connection) -> None:
            table = get_table(connection, plain_name(request.dbname), request.tablename, lock=True)
            constraints.drop_constraint(connection, table, request.constraintname)

        self._metastore.sql.write(drop)

    def get_primary_keys(self, request: Any) -> Any:
        found = self._of(request.db_name, request.tbl_name, constraints.PRIMARY_KEY)
        return hive.PrimaryKeysResponse(primaryKeys=found)

    def get_foreign_keys(self, request: Any) -> Any:
        """Answer the foreign keys of a table, those that refer to a table, or those between two tables."""
        if request.foreign_tbl_name is None:
            return hive.ForeignKeysResponse(foreignKeys=self._to(request))
        found = self._of(request.foreign_db_name, request.foreign_tbl_name, constraints.FOREIGN_KEY)
        wanted = [(request.parent_db_name, "pktable_db"), (request.parent_tbl_name, "pktable_name")]
        for asked, name in wanted:
            found = [one for one in found if asked is None or getattr(one, name) == asked.lower()]
        return hive.ForeignKeysResponse(foreignKeys=found)

    def get_unique_constraints(self, request: Any) -> Any:
        found = self._of(request.db_name, request.tbl_name, "unique")
        return hive.UniqueConstraintsResponse(uniqueConstraints=found)

    def get_not_null_constraints(self, request: Any) -> Any:
        found = self._of(request.db_name, request.tbl_name, "not_null")
        return hive.NotNullConstraintsResponse(notNullConstraints=found)

    def get_default_constraints(self, request: Any) -> Any:
        found = self._of(request.db_name, request.tbl_name, "default")
        return hive.DefaultConstraintsResponse(defaultConstraints=found)

    def get_check_constraints(self, request: Any) -> Any:
        found = self._of(request.db_name, request.tbl_name, "check")
        return hive.CheckConstraintsResponse(checkConstraints=found)

    def get_all_table_constraints(self, request: Any) -> Any:
        found = {
            kind.several: self._of(request.dbName, request.tblName, name) for name, kind in _KINDS.items()
        }
        return hive.AllTableConstraintsResponse(allTableConstraints=hive.SQLAllTableConstraints(**found))

    def _add(self, kind: str, structs: Sequence[Any]) -> None:
        """Declare constraints of one table, as in Hive."""
        if not structs:
            return
        of_foreign_key = kind == constraints.FOREIGN_KEY
        database = structs[0].fktable_db if of_foreign_key else structs[0].table_db
        table = structs[0].fktable_name if of_foreign_key else structs[0].table_name

        def add(connection: Connection) -> None:
            owner = get_table(connection, plain_name(database), table, lock=True)
            constraints.add_constraints(connection, owner, _read(kind, structs))

        self._metastore.sql.write(add)

    def _of(self, database: str, table: str, kind: str) -> list[Any]:
        def look(connection: Connection) -> list[Any]:
            owner = get_table(connection, plain_name(database), table)
            found = constraints.constraints_of(connection, owner)
            return _structs((owner.database, owner.name), (one for one in found if one.kind == kind))

        return self._metastore.sql.read(look)

    def _to(self, request: Any) -> list[Any]:
        def look(connection: Connection) -> list[Any]:
            parent = get_table(connection, plain_name(request.parent_db_name), request.parent_tbl_name)
            found = constraints.foreign_keys_to(connection, parent)
            wanted = request.foreign_db_name and request.foreign_db_name.lower()
            return [
                struct
                for place, one in found
                if wanted in (None, place[0])
                for struct in _structs(place, [one])
            ]

        return self._metastore.sql.read(look)


def _read(kind: str, structs: Iterable[Any] | None) -> list[Constraint]:
    """Read a client's constraints. Columns with the same name form one; those without a name form one."""
    how = _KINDS[kind]
    grouped: dict[object, list[Any]] = {}
    for number, one in enumerate(structs or ()):
        name = getattr(one, how.name)
        grouped.setdefault(number if how.one_each else name, []).append(one)
    return [
        Constraint(
            kind,
            [(_column(one), _said(one, how)) for one in sorted(of_one, key=lambda one: _place(one))],
            getattr(of_one[0], how.name),
            (plain_name(of_one[0].pktable_db), of_one[0].pktable_name)
            if kind == constraints.FOREIGN_KEY
            else None,
        )
        for of_one in grouped.values()
    ]


def _column(struct: Any) -> str:
    return str(struct.fkcolumn_name if isinstance(struct, hive.SQLForeignKey) else struct.column_name)


def _place(struct: Any) -> int:
    return getattr(struct, "key_seq", None) or 0


def _said(struct: Any, how: _Kind) -> dict[str, Any]:
    left_out = _OF_TABLE | {how.name, "column_name", "fkcolumn_name"}
    return {name: value for name, value in vars(struct).items() if value is not None and name not in left_out}


def _structs(place: tuple[str, str], found: Iterable[Constraint]) -> list[Any]:
    made = []
    for one in found:
        how = _KINDS[one.kind]
        for column, said in one.columns:
            if one.parent is None:
                where = {"table_db": place[0], "table_name": place[1], "column_name": column}
            else:
                where = {"fktable_db": place[0], "fktable_name": place[1], "fkcolumn_name": column}
                where |= {"pktable_db": one.parent[0], "pktable_name": one.parent[1]}
            made.append(how.struct(**{**said, **where, how.name: one.name, "catName": CATALOG}))
    return made
