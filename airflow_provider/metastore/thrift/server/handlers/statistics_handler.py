"""The methods about column statistics, which Hive's clients and Trino write and read."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from thriftpy2.protocol import TApacheJSONProtocol
from thriftpy2.transport import TMemoryBuffer
from thriftpy2.utils import deserialize, serialize

from airflow_provider.metastore.api import Metastore
from airflow_provider.metastore.catalog import ColumnStatistics, column_statistics, get_table
from airflow_provider.metastore.model import (
    CATALOG,
    NO_WRITE_ID,
    PartitionValues,
    TableInfo,
    partition_values,
)
from airflow_provider.metastore.thrift.protocol import hive, values_in_name
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import plain_name
from airflow_provider.metastore.thrift.server.handlers.merged_statistics import merged

_ENGINE = "hive"


class StatisticsHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    :param metastore: the metastore.
    """

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def update_table_column_statistics(self, statistics: Any) -> bool:
        self._update(statistics, statistics.engine)
        return True

    def update_partition_column_statistics(self, statistics: Any) -> bool:
        return self.update_table_column_statistics(statistics)

    def update_table_column_statistics_req(self, request: Any) -> Any:
        return hive.SetPartitionsStatsResponse(result=self.set_aggr_stats_for(request))

    def update_partition_column_statistics_req(self, request: Any) -> Any:
        return self.update_table_column_statistics_req(request)

    def set_aggr_stats_for(self, request: Any) -> bool:
        for one in request.colStats:
            self._update(one, request.engine, request.writeId, merges=bool(request.needMerge))
        return True

    def get_aggr_stats_for(self, request: Any) -> Any:
        found = self._of_partitions(
            request.dbName, request.tblName, request.partNames, request.colNames, request.engine
        )
        together: dict[str, Any] = {}
        for struct in (one for of_partition in found.values() for one in _structs(of_partition)):
            known = together.setdefault(struct.colName, struct)
            if known is not struct:
                known.statsData = merged(known.statsData, struct.statsData)
        wanted = len({name.lower() for name in request.colNames})
        complete = sum(len(one) == wanted for one in found.values())
        return hive.AggrStats(colStats=list(together.values()), partsFound=complete)

    def get_table_column_statistics(self, database: str, table: str, column: str) -> Any:
        return _answer(database, table, None, self._of_table(database, table, [column], None))

    def get_partition_column_statistics(self, database: str, table: str, partition: str, column: str) -> Any:
        found = self._of_partitions(database, table, [partition], [column], None)
        return _answer(database, table, partition, found.get(partition, []))

    def get_table_statistics_req(self, request: Any) -> Any:
        found = self._of_table(request.dbName, request.tblName, request.colNames, request.engine)
        return hive.TableStatsResult(tableStats=_structs(found))

    def get_partitions_statistics_req(self, request: Any) -> Any:
        found = self._of_partitions(
            request.dbName, request.tblName, request.partNames, request.colNames, request.engine
        )
        return hive.PartitionsStatsResult(partStats={name: _structs(one) for name, one in found.items()})

    def delete_table_column_statistics(
        self, database: str, table: str, column: str | None, engine: str | None
    ) -> bool:
        self._delete(database, table, None, column, engine)
        return True

    def delete_partition_column_statistics(
        self, database: str, table: str, partition: str, column: str | None, engine: str | None
    ) -> bool:
        self._delete(database, table, partition, column, engine)
        return True

    def _update(
        self, statistics: Any, engine: str | None, write_id: int | None = None, *, merges: bool = False
    ) -> None:
        place = statistics.statsDesc
        database, table = plain_name(place.dbName), place.tableName
        partition = self._values(database, table, None if place.isTblLevel else place.partName)
        given = {one.colName.lower(): one.statsData for one in statistics.statsObj}

        def update(connection: Connection) -> None:
            # The table is locked before its statistics are read, so that two merges at once do not lose one.
            owner = get_table(connection, database, table, lock=True)
            updated = dict(given)
            if merges:
                known = column_statistics.get_column_statistics(
                    connection,
                    database,
                    table,
                    list(given),
                    partitions=None if partition is None else [partition],
                    engine=engine or _ENGINE,
                )
                for one in known.get(partition, []):
                    updated[one.column] = merged(_data(one), given[one.column])
            column_statistics.update_column_statistics(
                connection,
                database,
                table,
                {column: serialize(data) for column, data in updated.items()},
                partition=partition,
                engine=engine or _ENGINE,
                struct=_statistics_json(owner, statistics, updated),
                write_id=NO_WRITE_ID if write_id is None else write_id,
            )

        self._metastore.sql.write(update)

    def _of_table(
        self, database: str, table: str, columns: Sequence[str], engine: str | None
    ) -> list[ColumnStatistics]:
        return self._metastore.sql.read(
            lambda connection: column_statistics.get_column_statistics(
                connection, plain_name(database), table, columns, partitions=None, engine=engine or _ENGINE
            )
        ).get(None, [])

    def _of_partitions(
        self, database: str, table: str, names: Sequence[str], columns: Sequence[str], engine: str | None
    ) -> dict[str, list[ColumnStatistics]]:
        owner = self._metastore.get_table(plain_name(database), table)
        wanted = {partition_values(values_in_name(owner, name)): name for name in names}
        found = self._metastore.sql.read(
            lambda connection: column_statistics.get_column_statistics(
                connection,
                owner.database,
                owner.name,
                columns,
                partitions=list(wanted),
                engine=engine or _ENGINE,
            )
        )
        return {wanted[values]: one for values, one in found.items() if values is not None}

    def _delete(
        self, database: str, table: str, partition: str | None, column: str | None, engine: str | None
    ) -> None:
        database = plain_name(database)
        values = self._values(database, table, partition)
        self._metastore.sql.write(
            lambda connection: column_statistics.delete_column_statistics(
                connection, database, table, column, partition=values, engine=engine or _ENGINE
            )
        )

    def _values(self, database: str, table: str, partition: str | None) -> PartitionValues | None:
        if partition is None:
            return None
        return partition_values(values_in_name(self._metastore.get_table(database, table), partition))


def _answer(database: str, table: str, partition: str | None, found: Sequence[ColumnStatistics]) -> Any:
    if not found:
        return None  # as in Hive
    place = hive.ColumnStatisticsDesc(
        isTblLevel=partition is None,
        dbName=plain_name(database),
        tableName=table,
        partName=partition,
        lastAnalyzed=found[0].analyzed_at,
    )
    return hive.ColumnStatistics(statsDesc=place, statsObj=_structs(found))


def _structs(found: Sequence[ColumnStatistics]) -> list[Any]:
    return [
        hive.ColumnStatisticsObj(
            colName=one.column,
            colType=one.type,
            statsData=_data(one),
        )
        for one in found
    ]


def _statistics_json(table: TableInfo, statistics: Any, data: Mapping[str, Any]) -> str:
    """Hive's struct of the new statistics, in Thrift's JSON."""
    place = copy.copy(statistics.statsDesc)
    place.dbName, place.tableName, place.catName = table.database, table.name, CATALOG
    types = {column.name.lower(): column.type for column in table.schema}
    known = [
        hive.ColumnStatisticsObj(colName=name, colType=types.get(name, ""), statsData=one)
        for name, one in data.items()
    ]
    trans = TMemoryBuffer()
    protocol = TApacheJSONProtocol(trans)
    protocol.write_message_begin("", 1, 0)
    protocol.write_struct(hive.ColumnStatistics(statsDesc=place, statsObj=known, engine=statistics.engine))
    return json.dumps(json.loads(trans.getvalue())[4], ensure_ascii=False)


def _data(statistics: ColumnStatistics) -> Any:
    return deserialize(hive.ColumnStatisticsData(), statistics.data)
