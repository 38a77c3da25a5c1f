"""The source of a server's reads, memory or the database, and the moment of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thriftpy2.rpc import make_client
from thriftpy2.utils import deserialize

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore import CachedStore, Column, Metastore, PartitionSpec
from airflow_provider.metastore.model import PartitionInfo
from airflow_provider.metastore.thrift.protocol import EncodedPartitions
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.structs import EncodedNames, TableStructs, partition_struct
from airflow_provider.metastore.thrift.server.handlers import PartitionHandler, PartitionReadHandler
from airflow_provider.metastore.thrift.server.handlers.catalog_handler import CatalogHandler
from airflow_provider.metastore.thrift.server.reads import CatalogReads
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.thrift.server.warehouse import Warehouse

# As Hive's Java client serialises it: the beginning of a Kryo stream.
KRYO = b"\x01\x00org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDes\xe3\x01"


def partitions_of(store: Metastore | CachedStore) -> PartitionReadHandler:
    return PartitionReadHandler(CatalogReads(store), TableStructs())


def catalog_of(store: Metastore | CachedStore) -> CatalogHandler:
    return CatalogHandler(CatalogReads(store), TableStructs(), Warehouse(None))


def add_months(metastore: Metastore, *numbers: str) -> None:
    specs = [PartitionSpec(("2013", number), f"/lake/flights/2013/{number}") for number in numbers]
    metastore.add_partitions("lake", "flights", specs)


def by_expression(text: bytes, **fields: Any) -> Any:
    return hive.PartitionsByExprRequest(dbName="lake", tblName="flights", expr=text, **fields)


def of_now(store: CachedStore) -> dict[str, Any]:
    """The arguments of a reader with a present snapshot."""
    snapshot = store.metastore.read_snapshot([("lake", "flights")]).tables["lake.flights"]
    return {"validWriteIdList": str(snapshot.write_ids), "id": snapshot.table_id}


def decoded(partitions: EncodedPartitions) -> list[Any]:
    response = b"\x0f\x00\x01" + partitions.encoded + b"\x00"  # PartitionsResponse.partitions
    found: list[Any] = deserialize(hive.PartitionsResponse(), response).partitions
    return found


def ids_now(store: CachedStore) -> tuple[str, int]:
    snapshot = store.metastore.read_snapshot([("lake", "flights")]).tables["lake.flights"]
    return str(snapshot.write_ids), snapshot.table_id


def names(encoded: EncodedNames) -> list[str]:
    response = b"\x0f\x00\x01" + encoded.encoded + b"\x00"  # GetPartitionNamesPsResponse.names
    found: list[str] = deserialize(hive.GetPartitionNamesPsResponse(), response).names
    return found


def months(partitions: list[Any] | EncodedPartitions) -> list[str]:
    found = decoded(partitions) if isinstance(partitions, EncodedPartitions) else partitions
    return [one.values[1] for one in found]


def follow(store: CachedStore) -> None:
    while store.updater.step():
        pass


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with served(ServiceOptions(url, port=0), housekeeping=False) as server:
        opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
        yield opened
        opened.close()


def test_partitions_by_expression_are_those_of_the_filter_that_it_is(by_database: Metastore) -> None:
    add_months(by_database, "1", "2", "3")
    handler = partitions_of(by_database)

    def found(text: bytes, **fields: Any) -> list[str]:
        answer = handler.get_partitions_by_expr(by_expression(text, **fields))
        assert answer.hasUnknownPartitions is False
        return months(answer.partitions)

    # As MSCK writes it.
    assert found(b"(year='2013' AND month='1') OR (year='2013' AND month='3')") == ["1", "3"]
    assert found(b"month > 1", maxParts=1) == ["2"]
    assert found(b"month > 1\n and month < 3") == ["2"]
    assert found(b"") == ["1", "2", "3"]
    with pytest.raises(InvalidInputError, match="in the order"):
        found(b"", order="1:+")


@pytest.mark.parametrize("expression", [KRYO, b"\xff", b"\x01month = 1"])
def test_an_expression_that_only_hive_can_read_is_refused_and_the_connection_lives_on(
    client: Any, expression: bytes
) -> None:
    with pytest.raises(hive.MetaException, match="only Hive can read"):
        client.get_partitions_by_expr(by_expression(expression))
    with pytest.raises(hive.MetaException, match="is no partition filter"):
        client.get_partitions_by_expr(by_expression(b"no filter"))
    assert client.get_partitions_by_expr(by_expression(b"month = 1")).partitions == []


def test_partitions_by_expression_come_from_memory_when_it_is_as_new_as_the_reader(r1: CachedStore) -> None:
    add_months(r1.metastore, "1", "2")
    follow(r1)
    before = r1.statistics()
    answer = partitions_of(r1).get_partitions_by_expr(by_expression(b"month = 2", **of_now(r1)))
    assert months(answer.partitions) == ["2"]
    assert (r1.statistics().hits, r1.statistics().misses) == (before.hits + 1, before.misses)


def test_partitions_by_expression_come_from_the_database_when_the_reader_saw_more(r1: CachedStore) -> None:
    add_months(r1.metastore, "1", "2")
    before = r1.statistics()
    answer = partitions_of(r1).get_partitions_by_expr(by_expression(b"month = 2", **of_now(r1)))
    assert months(answer.partitions) == ["2"]
    assert r1.statistics().hits == before.hits


def test_partitions_are_dropped_by_the_filters_that_expressions_are(by_database: Metastore) -> None:
    add_months(by_database, "1", "2", "3", "4")
    handler = PartitionHandler(CatalogReads(by_database), TableStructs(), Warehouse(None))

    def drop(*texts: bytes, if_exists: bool = False) -> list[str]:
        expressions = [hive.DropPartitionsExpr(expr=text) for text in texts]
        request = hive.DropPartitionsRequest(
            dbName="lake",
            tblName="flights",
            parts=hive.RequestPartsSpec(exprs=expressions),
            ifExists=if_exists,
        )
        return months(handler.drop_partitions_req(request).partitions)

    with pytest.raises(NoSuchObjectError, match="no partition with month = 9"):
        drop(b"month = 1", b"month = 9")
    with pytest.raises(InvalidInputError, match="only Hive can read"):
        drop(b"month = 1", KRYO)
    with pytest.raises(InvalidInputError, match="an empty expression is every partition"):
        drop(b" ")
    assert months(by_database.get_partitions("lake", "flights")) == ["1", "2", "3", "4"]
    assert drop(b"month = 1", b"month <= 2", b"month = 9", if_exists=True) == ["1", "2"]
    assert drop(b"month = 9", if_exists=True) == []
    assert months(by_database.get_partitions("lake", "flights")) == ["3", "4"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda handler: handler.get_partitions("lake", "flights", -1),
        lambda handler: handler.get_partition("lake", "flights", ["2013", "2"]),
        lambda handler: handler.get_partition_names("lake", "flights", -1),
        lambda handler: handler.get_partitions_ps("lake", "flights", ["2013"], -1),
        lambda handler: handler.get_partitions_by_names("lake", "flights", ["year=2013/month=2"]),
        lambda handler: handler.get_partitions_by_filter("lake", "flights", "month = 2", -1),
    ],
)
def test_partitions_and_their_table_are_of_one_moment(
    by_database: Metastore, monkeypatch: pytest.MonkeyPatch, ask: Callable[[PartitionReadHandler], Any]
) -> None:
    add_months(by_database, "2")
    reads, read = [], by_database.sql.read

    def noted(*arguments: Any, **options: Any) -> Any:
        reads.append(arguments)
        return read(*arguments, **options)

    monkeypatch.setattr(by_database.sql, "read", noted)
    assert ask(partitions_of(by_database))
    assert len(reads) == 1


def test_databases_and_functions_come_from_memory_as_long_as_none_changed(r1: CachedStore) -> None:
    r1.metastore.create_function("lake", "twice", "org.example.Twice", resources=["/twice.jar"])
    follow(r1)
    catalog = catalog_of(r1)
    catalog.get_all_databases()
    before = r1.statistics()
    assert catalog.get_database("Lake").name == "lake"
    assert catalog.get_all_databases() == ["default", "lake"]
    assert catalog.get_function("lake", "Twice").className == "org.example.Twice"
    assert catalog.get_functions("lake", "*") == ["twice"]
    assert [one.functionName for one in catalog.get_all_functions().functions] == ["twice"]
    after = r1.statistics()
    assert (after.hits, after.misses) == (before.hits + 5, before.misses)


def test_a_change_of_databases_or_functions_shows_at_once_although_the_replica_is_behind(
    r1: CachedStore,
) -> None:
    catalog = catalog_of(r1)
    assert catalog.get_all_databases() == ["default", "lake"]
    r1.metastore.create_database("shop")
    r1.metastore.create_function("lake", "twice", "org.example.Twice")
    before = r1.statistics()
    assert catalog.get_all_databases() == ["default", "lake", "shop"]
    assert catalog.get_database("shop").name == "shop"
    assert catalog.get_functions("lake", "*") == ["twice"]
    assert [one.functionName for one in catalog.get_all_functions().functions] == ["twice"]
    r1.metastore.drop_function("lake", "twice")
    assert catalog.get_all_functions().functions == []
    with pytest.raises(NoSuchObjectError):
        catalog.get_function("lake", "twice")
    assert r1.statistics().hits == before.hits


def test_a_request_without_write_ids_is_answered_from_memory_while_it_has_the_last_event(
    r1: CachedStore,
) -> None:
    snapshot = r1.metastore.read_snapshot([("lake", "flights")]).tables["lake.flights"]
    reads, handler = CatalogReads(r1), partitions_of(r1)
    reader = reads.reader(str(snapshot.write_ids), snapshot.table_id)
    assert reads.table_and_partitions("lake", "flights", reader)[1] == []  # memory has them from now on
    hits = r1.statistics().hits
    assert reads.table("lake", "flights").name == "flights"
    assert reads.table_and_partitions("lake", "flights")[1] == []
    assert r1.statistics().hits == hits + 2

    add_months(r1.metastore, "2", "1")
    r1.metastore.alter_table("lake", "flights", owner="ann")
    for behind in (True, False):
        assert reads.table("lake", "flights").owner == "ann"
        assert months(handler.get_partitions("lake", "flights", -1)) == ["1", "2"]
        assert months(handler.get_partitions("lake", "flights", 1)) == ["1"]
        assert names(handler.get_partition_names("lake", "flights", -1)) == [
            "year=2013/month=1",
            "year=2013/month=2",
        ]
        assert r1.statistics().hits == hits + (2 if behind else 6)
        r1.updater.step()

    r1.metastore.drop_table("lake", "flights")
    with pytest.raises(NoSuchObjectError):
        reads.table("lake", "flights")
    assert r1.statistics().hits == hits + 6


def test_a_table_that_is_asked_for_again_and_again_joins_memory_unless_it_is_too_large(
    r1: CachedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_months(r1.metastore, "1", "2", "3")
    r1.updater.step()
    r1._state.tables.clear()
    handler = partitions_of(r1)

    def asked(times: int) -> int:
        """Ask by a filter, and count the answers from memory."""
        before = r1.statistics().hits
        for _ in range(times):
            assert months(handler.get_partitions_by_filter("lake", "flights", "month = 2", -1)) == ["2"]
        return r1.statistics().hits - before

    monkeypatch.setattr("airflow_provider.metastore.cache.latest_reads._MOST_PARTITIONS", 2)
    assert asked(3 + 5) == 0
    monkeypatch.setattr("airflow_provider.metastore.cache.latest_reads._MOST_PARTITIONS", 3)
    assert asked(3) == 3  # the sixth request after the first attempt, and all that follow
    r1._state.tables.clear()
    assert asked(3 * 2 * 2 + 2) == 3


def test_a_request_without_write_ids_sees_an_open_transaction_in_memory_as_in_the_database(
    r1: CachedStore,
) -> None:
    metastore, reads = r1.metastore, CatalogReads(r1)
    txn_id = metastore.open_txn("me", "here")
    r1.get_partitions("lake", "flights", **CatalogReads(r1).reader(*ids_now(r1)))
    metastore.add_partitions("lake", "flights", [PartitionSpec(("2013", "5"), "/lake/5")], txn_id=txn_id)
    r1.updater.step()
    hits = r1.statistics().hits
    assert [one.values for one in reads.table_and_partitions("lake", "flights")[1]] == [("2013", "5")]
    assert r1.statistics().hits == hits + 1
    assert metastore.get_partitions("lake", "flights") == reads.table_and_partitions("lake", "flights")[1]


@pytest.mark.parametrize("eventual", [False, True])
def test_external_tables_come_late_only_if_asked_for(r1: CachedStore, eventual: bool) -> None:
    r1.metastore.create_table(
        "lake", "berg", location="/b", schema=[Column("id", "int")], table_type="EXTERNAL_TABLE"
    )
    r1.updater.step()
    reads = CatalogReads(r1, eventual=eventual)
    reads.table("lake", "berg")
    r1.metastore.alter_table("lake", "berg", parameters={"metadata_location": "v2"})
    assert reads.table("lake", "berg").parameters == ({} if eventual else {"metadata_location": "v2"})


def test_answers_are_encoded_once_as_long_as_their_table_is_in_memory(by_database: Metastore) -> None:
    tables = [by_database.get_table("lake", "flights") for _ in range(10)]
    size = len(TableStructs().encoded(tables[0]).encoded)
    structs = TableStructs(max_bytes=3 * size)
    first = structs.encoded(tables[0])
    assert structs.encoded(tables[0]) is first
    for one in tables:
        assert structs.encoded(one) == first
        assert structs.size <= 3 * size
    assert structs.size == 3 * size
    del tables[:], one
    assert structs.size == 0
    another = by_database.get_table("lake", "flights")
    assert TableStructs(max_bytes=size - 1).encoded(another) == first


def test_write_ids_can_be_required(r1: CachedStore) -> None:
    for store in (r1, r1.metastore):
        reads = CatalogReads(store, require_write_ids=True)
        assert reads.table("lake", "flights").name == "flights"  # the old requests
        with pytest.raises(InvalidInputError, match=r"lake\.flights is managed"):
            reads.table("lake", "flights", reads.reader(None, -1))


def test_changes_by_hives_clients_reach_memory_by_the_log(r1: CachedStore) -> None:
    handler = CatalogHandler(CatalogReads(r1), TableStructs(), Warehouse(None))
    changed = TableStructs().of(r1.metastore.get_table("lake", "flights"))
    changed.sd.numBuckets, changed.viewOriginalText = 7, "sélect"
    handler.alter_table("lake", "flights", changed)
    r1.updater.step()
    snapshot = r1.metastore.read_snapshot([("lake", "flights")]).tables["lake.flights"]
    found = r1.get_table("lake", "flights", valid_write_ids=snapshot.write_ids, table_id=snapshot.table_id)
    assert r1.statistics().hits == 1
    assert found == r1.metastore.get_table("lake", "flights")
    assert TableStructs().of(found).sd.numBuckets == 7


def test_the_bytes_of_partitions_are_those_of_their_structs(by_database: Metastore) -> None:
    table = by_database.get_table("lake", "flights")
    structs = TableStructs()
    of_table = structs.of(table)
    own = json.dumps({"3": {"str": "org.of.its.own.InputFormat"}})
    partitions = [
        PartitionInfo(("2013", "1"), "/lake/flights/2013/1"),
        PartitionInfo((None, "Übermäßig"), "", {"numRows": "7", "größe": ""}),
        PartitionInfo(("2013", ""), "s3://lake/ö", {}, own),
        PartitionInfo(("2013", "4"), "/lake/flights/2013/4", {"a": "b"}, own),
    ]
    for chosen in (partitions, partitions[:1], partitions[2:], []):
        found = decoded(structs.encoded_partitions(table, chosen))
        assert found == [partition_struct(table, of_table, one) for one in chosen]
