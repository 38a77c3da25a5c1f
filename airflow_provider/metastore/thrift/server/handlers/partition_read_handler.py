"""The methods that read partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.catalog import Choose
from airflow_provider.metastore.model import (
    PartitionChoice,
    PartitionInfo,
    PartitionValues,
    Reader,
    TableInfo,
    partition_texts,
    partition_values,
)
from airflow_provider.metastore.partition_filter import partition_choice
from airflow_provider.metastore.thrift.protocol import (
    EncodedNames,
    EncodedPartitions,
    TableStructs,
    encoded_names,
    hive,
    partition_names,
    values_in_name,
)
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import plain_name
from airflow_provider.metastore.thrift.server.handlers.hive_tables import projected
from airflow_provider.metastore.thrift.server.handlers.partition_specs import partition_specs
from airflow_provider.metastore.thrift.server.reads import CatalogReads, event_seen
from airflow_provider.table.keys import escape_path_name, unescape_path_name


def _all(table: TableInfo) -> PartitionChoice:
    return PartitionChoice()


def _beginning(values: Sequence[str]) -> Choose:
    """Choose the partitions with these first values; an empty value stands for any."""

    def keep(own: PartitionValues) -> bool:
        return all(asked in ("", had) for asked, had in zip(values, partition_texts(own), strict=False))

    known = {at: set(partition_values([one])) | {one} for at, one in enumerate(values) if one}

    def choose(table: TableInfo) -> PartitionChoice:
        if len(values) > len(table.partition_keys):
            raise InvalidInputError(
                f"table {table.full_name} has {len(table.partition_keys)} partition keys, and {len(values)} "
                f"values are given: {list(values)}; give one for each of the first keys",
                table=table.full_name,
            )
        return PartitionChoice(keep, plain=known, texts=list(known))

    return choose


def _named(names: Sequence[str]) -> Choose:
    """Choose partitions by names such as ``year=2013/month=1``."""

    def choose(table: TableInfo) -> PartitionChoice:
        known = dict.fromkeys(partition_values(values_in_name(table, name)) for name in names)
        return PartitionChoice(known.__contains__, exact=list(known))

    return choose


def _filtered(text: str) -> Choose:
    return lambda table: partition_choice(text, table.partition_keys)


def expression_text(expression: bytes) -> str:
    """The text of a filter in an expression."""
    with contextlib.suppress(UnicodeDecodeError):
        text = expression.decode()
        if "".join(text.split()).isprintable():
            return text
    raise InvalidInputError(
        "the expression is a serialised Java object, which only Hive can read; give the text of a partition "
        "filter in its place, or ask by get_partitions_by_filter"
    )


def _expression_of(request: Any) -> str:
    if request.order:
        raise InvalidInputError(f"partitions come in the order of their names, not of {request.order!r}")
    return expression_text(request.expr)


def _chosen_by(spec: Any) -> Choose:
    """Choose the partitions of a ``GetPartitionsFilterSpec``; without filters every partition."""
    filters = (spec and spec.filters) or []
    if not filters:
        return _all
    match spec.filterMode:
        case hive.PartitionFilterMode.BY_NAMES:
            return _named(filters)
        case hive.PartitionFilterMode.BY_VALUES:
            return _beginning(filters)
        case hive.PartitionFilterMode.BY_EXPR:
            return _filtered(" and ".join(f"({one})" for one in filters))
    raise InvalidInputError(f"the filters {filters} have no filterMode; give BY_NAMES, BY_VALUES or BY_EXPR")


def _steps(name: str) -> dict[str, str]:
    """The keys and values in the name of a partition of any table."""
    steps = [step.partition("=") for step in name.split("/")] if name else []
    if broken := [f"{key}{sign}{value}" for key, sign, value in steps if not (key and sign)]:
        raise InvalidInputError(f"{name!r} is no name of a partition: {broken[0]!r} is not KEY=VALUE")
    return {unescape_path_name(key): unescape_path_name(value) for key, _, value in steps}


def _most(limit: int | None) -> int | None:
    """The largest number of partitions in an answer; None, for all, when the limit is negative."""
    return None if limit is None or limit < 0 else limit


class PartitionReadHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param reads: answers the reads.
    :param structs: makes the structs of tables.
    """

    def __init__(self, reads: CatalogReads, structs: TableStructs) -> None:
        self._reads = reads
        self._structs = structs

    def get_partition(self, database: str, table: str, values: list[str]) -> Any:
        return self._partition(database, table, values)

    def get_partition_with_auth(
        self, database: str, table: str, values: list[str], user: str, groups: list[str]
    ) -> Any:
        return self._partition(database, table, values)

    def get_partition_by_name(self, database: str, table: str, name: str) -> Any:
        values = values_in_name(self._reads.table(plain_name(database), table), name)
        return self._partition(database, table, values)

    def get_partition_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._partition(request.dbName, request.tblName, request.partVals, reader)
        return hive.GetPartitionResponse(partition=found)

    def get_partitions(self, database: str, table: str, limit: int) -> EncodedPartitions:
        return self._partitions(database, table, limit)

    def get_partitions_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        found = self._partitions(request.dbName, request.tblName, request.maxParts, reader=reader)
        return hive.PartitionsResponse(partitions=found)

    def get_partition_names(self, database: str, table: str, limit: int) -> EncodedNames:
        return self._names(database, table, limit)

    def fetch_partition_names_req(self, request: Any) -> EncodedNames:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        return self._names(request.dbName, request.tblName, request.maxParts, reader=reader)

    def get_partitions_ps(
        self, database: str, table: str, values: list[str], limit: int
    ) -> EncodedPartitions:
        return self._partitions(database, table, limit, _beginning(values))

    def get_partitions_ps_with_auth(
        self, database: str, table: str, values: list[str], limit: int, user: str, groups: list[str]
    ) -> EncodedPartitions:
        return self._partitions(database, table, limit, _beginning(values))

    def get_partitions_ps_with_auth_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        names, values = request.partNames, request.partVals or []
        choice = _beginning(values) if names is None else _named(names)
        found = self._partitions(request.dbName, request.tblName, request.maxParts, choice, reader=reader)
        return hive.GetPartitionsPsWithAuthResponse(partitions=found)

    def get_partition_names_ps(
        self, database: str, table: str, values: list[str], limit: int
    ) -> EncodedNames:
        return self._names(database, table, limit, _beginning(values))

    def get_partition_names_ps_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _beginning(request.partValues or [])
        place = (plain_name(request.dbName), request.tblName)
        owner, found = self._reads.table_and_chosen_values(*place, choice, reader)
        names = partition_names(owner, found[: _most(request.maxParts)])
        return hive.GetPartitionNamesPsResponse(names=names)

    def get_partitions_by_names(self, database: str, table: str, names: list[str]) -> EncodedPartitions:
        return self._partitions(database, table, -1, _named(names))

    def get_partitions_by_names_req(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _named(request.names or [])
        found = self._partitions(request.db_name, request.tbl_name, -1, choice, reader=reader)
        return hive.GetPartitionsByNamesResult(partitions=found)

    def get_partitions_by_filter(self, database: str, table: str, text: str, limit: int) -> EncodedPartitions:
        return self._partitions(database, table, limit, _filtered(text))

    def get_partitions_by_filter_req(self, request: Any) -> EncodedPartitions:
        return self.get_partitions_by_filter(
            request.dbName, request.tblName, request.filter, request.maxParts
        )

    def get_num_partitions_by_filter(self, database: str, table: str, text: str) -> int:
        return len(self._reads.table_and_chosen_values(plain_name(database), table, _filtered(text))[1])

    def get_partitions_by_expr(self, request: Any) -> Any:
        """Read an expression as a filter's text, as Hive's ``MsckPartitionExpressionProxy`` does."""
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _filtered(_expression_of(request))
        found = self._partitions(request.dbName, request.tblName, request.maxParts, choice, reader=reader)
        return hive.PartitionsByExprResult(partitions=found, hasUnknownPartitions=False)

    def get_partitions_with_auth(
        self, database: str, table: str, limit: int, user: str, groups: list[str]
    ) -> EncodedPartitions:
        return self._partitions(database, table, limit)

    def get_partitions_pspec(self, database: str, table: str, limit: int) -> list[Any]:
        return self._specs(database, table, limit)

    def get_part_specs_by_filter(self, database: str, table: str, text: str, limit: int) -> list[Any]:
        return self._specs(database, table, limit, _filtered(text))

    def get_partitions_spec_by_expr(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _filtered(_expression_of(request))
        specs = self._specs(request.dbName, request.tblName, request.maxParts, choice, reader)
        return hive.PartitionsSpecByExprResult(partitionsSpec=specs, hasUnknownPartitions=False)

    def get_partitions_with_specs(self, request: Any) -> Any:
        reader = self._reads.reader(request.validWriteIdList, None)
        choice = _chosen_by(request.filterSpec)
        owner, found = self._chosen(request.dbName, request.tblName, -1, choice, reader)
        wanted = request.projectionSpec or hive.GetProjectionsSpec()
        patterns = (wanted.includeParamKeyPattern, wanted.excludeParamKeyPattern)
        kept = [
            projected(one, wanted.fieldList or (), *patterns)
            for one in self._structs.of_partitions(owner, found)
        ]
        return hive.GetPartitionsResponse(partitionSpec=partition_specs(owner, kept))

    def get_partition_names_req(self, request: Any) -> EncodedNames:
        reader = self._reads.reader(request.validWriteIdList, request.id)
        choice = _filtered(_expression_of(request))
        return self._names(request.dbName, request.tblName, request.maxParts, choice, reader=reader)

    def get_partition_values(self, request: Any) -> Any:
        """The values as in the partitions' names, that is escaped, as in Hive's answer."""
        reader = self._reads.reader(request.validWriteIdList, None)
        choice = _filtered(request.filter or "")
        owner, found = self._chosen(request.dbName, request.tblName, -1, choice, reader)
        names = [key.name.lower() for key in owner.partition_keys]

        def row(partition: PartitionInfo, keys: Sequence[Any]) -> tuple[str, ...]:
            texts = dict(zip(names, partition_texts(partition.values), strict=True))
            if unknown := [one.name for one in keys if one.name.lower() not in texts]:
                raise InvalidInputError(
                    f"table {owner.full_name} has no partition key {unknown[0]!r}; it has {names}",
                    table=owner.full_name,
                )
            return tuple(escape_path_name(texts[one.name.lower()]) for one in keys)

        order = request.partitionOrder or request.partitionKeys
        found = sorted(found, key=lambda one: row(one, order), reverse=request.ascending is False)
        rows = [row(one, request.partitionKeys) for one in found]
        if request.applyDistinct:
            rows = list(dict.fromkeys(rows))
        if request.maxParts is not None and request.maxParts >= 0:
            rows = rows[: request.maxParts]
        answer = [hive.PartitionValuesRow(row=list(one)) for one in rows]
        return hive.PartitionValuesResponse(partitionValues=answer)

    def partition_name_to_vals(self, name: str) -> list[str]:
        return list(_steps(name).values())

    def partition_name_to_spec(self, name: str) -> dict[str, str]:
        return _steps(name)

    def partition_name_has_valid_characters(self, values: list[str], raises: bool) -> bool:
        """Accept every character in a value, as a Hive without a pattern for values does."""
        return True

    def read_partitions(self, request: Any) -> Any:
        """Answer our own client, because Hive's requests for partitions have no field for the session."""
        reader = self._reads.reader(request.validWriteIdList, request.id, request.seenEventId)
        place = (request.dbName, request.tblName)
        if request.values is not None:
            found: Any = [self._partition(*place, request.values, reader)]
        else:
            choice = _all if request.filter is None else _filtered(request.filter)
            found = self._partitions(*place, -1, choice, reader=reader)
        return hive.ReadPartitionsResponse(partitions=found, eventId=event_seen(reader))

    def _partition(self, database: str, table: str, values: list[str], reader: Reader | None = None) -> Any:
        owner, found = self._reads.table_and_partition(plain_name(database), table, values, reader)
        return self._structs.of_partitions(owner, [found])[0]

    def _partitions(
        self, database: str, table: str, limit: int, choice: Choose = _all, *, reader: Reader | None = None
    ) -> EncodedPartitions:
        return self._structs.encoded_partitions(*self._chosen(database, table, limit, choice, reader))

    def _names(
        self,
        database: str,
        table: str,
        limit: int | None,
        choice: Choose = _all,
        *,
        reader: Reader | None = None,
    ) -> EncodedNames:
        owner, found = self._reads.table_and_chosen_values(plain_name(database), table, choice, reader)
        most = _most(limit)
        return encoded_names(owner, found if most is None else found[:most])

    def _chosen(
        self, database: str, table: str, limit: int | None, choice: Choose, reader: Reader | None
    ) -> tuple[TableInfo, list[PartitionInfo]]:
        """A table and its chosen partitions, as of one moment."""
        return self._reads.table_and_chosen(plain_name(database), table, choice, _most(limit), reader)

    def _specs(
        self, database: str, table: str, limit: int, choice: Choose = _all, reader: Reader | None = None
    ) -> list[Any]:
        owner, found = self._chosen(database, table, limit, choice, reader)
        return partition_specs(owner, self._structs.of_partitions(owner, found))
