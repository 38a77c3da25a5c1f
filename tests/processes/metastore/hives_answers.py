"""The answers of a Hive Metastore 2.3 to a client that is made from Hive's own definition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

USER, ROLE, GROUP = ttypes.PrincipalType.USER, ttypes.PrincipalType.ROLE, ttypes.PrincipalType.GROUP
TABLE = ttypes.HiveObjectRef(ttypes.HiveObjectType.TABLE, "answers", "flights")
COLUMNS = [("id", "bigint"), ("dest", "string"), ("fare", "decimal(7,2)"), ("ok", "boolean"), ("on", "date")]


@contextmanager
def hives_client(port: int) -> Iterator[Any]:
    """A client of a server on this machine."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    yield ThriftHiveMetastore.Client(TBinaryProtocol(transport))
    transport.close()


def answers(client: Any) -> Iterator[tuple[str, Any]]:
    """Each request, with its answer or the kind of its error."""
    _create(client)
    grants, principals = ttypes.GetRoleGrantsForPrincipalRequest, ttypes.GetPrincipalsInRoleRequest
    yield _answer(client, "get_role_names")
    for principal, kind in (("me", USER), ("public", ROLE), ("all", GROUP)):
        yield _answer(client, "list_roles", principal, kind)
        yield _answer(client, "get_role_grants_for_principal", grants(principal, kind))
        yield _answer(client, "list_privileges", principal, kind, TABLE)
    yield _answer(client, "get_principals_in_role", principals("admin"))
    for kind in (ttypes.HiveObjectType.GLOBAL, ttypes.HiveObjectType.DATABASE, ttypes.HiveObjectType.TABLE):
        place = ttypes.HiveObjectRef(kind, "answers", "flights")
        yield _answer(client, "get_privilege_set", place, "me", ["all", "some"])
    yield from _statistics(client)
    for old, new in (("2013", "2015"), ("2013", "2016")):
        renamed = client.get_partition("answers", "flights", ["2014"])
        renamed.values = [new]
        _, answer = _answer(client, "rename_partition", "answers", "flights", [old], renamed)
        yield f"{old} becomes {new}", answer
        yield _answer(client, "get_partition_names", "answers", "flights", -1)
    yield "location", client.get_partition("answers", "flights", ["2015"]).sd.location


def _statistics(client: Any) -> Iterator[tuple[str, Any]]:
    def of(partition: str | None, *columns: str) -> Any:
        place = ttypes.ColumnStatisticsDesc(partition is None, "answers", "flights", partition)
        return ttypes.ColumnStatistics(place, [_found(column) for column in columns])

    names = [name for name, _ in COLUMNS]
    of_table = ttypes.TableStatsRequest("answers", "flights", [*names, "nope"], engine="hive")
    yield _answer(client, "get_table_statistics_req", of_table)
    yield _answer(client, "get_table_column_statistics", "answers", "flights", "id")
    yield _answer(client, "update_table_column_statistics", of(None, *names))
    yield _answer(client, "get_table_statistics_req", of_table)
    for column in [*names, "ID", "nope"]:
        yield _answer(client, "get_table_column_statistics", "answers", "flights", column)
    yield _answer(client, "update_partition_column_statistics", of("year=2013", "id"))
    yield _answer(client, "update_partition_column_statistics", of("year=1999", "id"))
    several = ["year=2013", "year=2014", "year=1999"]
    of_partitions = ttypes.PartitionsStatsRequest(
        "answers", "flights", ["id", "dest"], several, engine="hive"
    )
    yield _answer(client, "get_partitions_statistics_req", of_partitions)
    for partition in several:
        yield _answer(client, "get_partition_column_statistics", "answers", "flights", partition, "id")
    for column in ("id", "id", None):
        yield _answer(client, "delete_table_column_statistics", "answers", "flights", column, "hive")
    for _ in range(2):
        place = ("answers", "flights", "year=2013", "id", "hive")
        yield _answer(client, "delete_partition_column_statistics", *place)
    yield _answer(client, "get_table_statistics_req", of_table)
    yield _answer(client, "delete_table_column_statistics", "answers", "nope", "id", "hive")


def _answer(client: Any, method: str, *arguments: Any) -> tuple[str, Any]:
    asked = f"{method}{arguments}"
    try:
        answer = getattr(client, method)(*arguments)
    except ttypes.TException as error:
        return asked, type(error).__name__
    if isinstance(answer, ttypes.ColumnStatistics):
        assert answer.statsDesc.lastAnalyzed > 1_700_000_000
        # Times, and fields that version 2.3 lacks.
        answer.statsDesc.lastAnalyzed = answer.engine = None
    return asked, answer


def _found(column: str) -> Any:
    data = {
        "id": {"longStats": ttypes.LongColumnStatsData(1, 9, 0, 9)},
        "dest": {"stringStats": ttypes.StringColumnStatsData(3, 2.5, 1, 2)},
        "fare": {
            "decimalStats": ttypes.DecimalColumnStatsData(
                ttypes.Decimal(2, b"\x01"), ttypes.Decimal(2, b"\x7f"), 0, 3
            )
        },
        "ok": {"booleanStats": ttypes.BooleanColumnStatsData(3, 4, 5)},
        "on": {"dateStats": ttypes.DateColumnStatsData(ttypes.Date(1), ttypes.Date(9), 0, 4)},
    }
    statistics = ttypes.ColumnStatisticsData(**data[column])
    return ttypes.ColumnStatisticsObj(column, dict(COLUMNS)[column], statistics)


def found_by_like(client: Any) -> dict[str, list[str]]:
    """The values that patterns find; a Hive 2.3 reads each as a Java pattern."""
    client.create_database(ttypes.Database("likes", locationUri="file:/tmp/likes"))
    keys = [ttypes.FieldSchema("d", "string")]
    place = "file:/tmp/likes/t"
    client.create_table(_external("likes", "t", place, keys))
    for value in ("a", "ab", "a%", "b", "a.b"):
        client.add_partition(
            ttypes.Partition(
                [value], "likes", "t", sd=_stored(f"{place}/{len(value)}{value[-1]}"), parameters={}
            )
        )
    return {
        pattern: sorted(
            one.values[0] for one in client.get_partitions_by_filter("likes", "t", f'd like "{pattern}"', -1)
        )
        for pattern in ("a.*", "a.", "a%", "a_", ".*b", "%b", "a\\\\.b", "b")
    }


def _stored(location: str) -> Any:
    return ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(name, kind) for name, kind in COLUMNS],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        parameters={},
    )


def _external(database: str, name: str, location: str, keys: list[Any]) -> Any:
    return ttypes.Table(
        name,
        database,
        "me",
        sd=_stored(location),
        partitionKeys=keys,
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )


def _create(client: Any) -> None:
    client.create_database(ttypes.Database("answers", locationUri="file:/tmp/answers"))
    keys = [ttypes.FieldSchema("year", "int")]
    client.create_table(_external("answers", "flights", "file:/tmp/answers/flights", keys))
    for year in ("2013", "2014"):
        location = f"file:/tmp/answers/flights/year={year}"
        client.add_partition(
            ttypes.Partition([year], "answers", "flights", sd=_stored(location), parameters={})
        )
