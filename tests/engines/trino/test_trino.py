"""A real Trino 476 on our metastore: Trino's own tables, ACID tables, Iceberg tables, and our Hudi tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import Server
from tests.engines.hudi_tables import FORMS, ROWS, create_hudi_tables
from tests.engines.trino.server import Trino, TrinoError, trino


@pytest.fixture(scope="module")
def engine(ours: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino(tmp_path_factory.mktemp("trino"), ours.uri) as started:
        yield started


@pytest.fixture
def schema(engine: Trino) -> Iterator[str]:
    engine.rows("create schema hive.tr")
    yield "hive.tr"
    engine.rows("drop schema hive.tr cascade")
    assert ["tr"] not in engine.rows("show schemas from hive")


def test_a_table(engine: Trino, schema: str) -> None:
    engine.rows("create table hive.tr.t (id bigint, v varchar)")
    engine.rows("insert into hive.tr.t values (1, 'a'), (2, 'b')")
    engine.rows("alter table hive.tr.t add column w double")
    engine.rows("alter table hive.tr.t rename to hive.tr.u")
    engine.rows("comment on table hive.tr.u is 'hello'")
    assert engine.rows("select * from hive.tr.u order by 1") == [[1, "a", None], [2, "b", None]]
    engine.rows("create view hive.tr.v as select id from hive.tr.u")
    assert engine.rows("select * from hive.tr.v order by 1") == [[1], [2]]
    tables = "hive.information_schema.tables where table_schema = 'tr'"
    assert engine.rows(f"select table_name, table_type from {tables} order by 1") == [
        ["u", "BASE TABLE"],
        ["v", "VIEW"],
    ]
    with pytest.raises(TrinoError, match="already exists"):
        engine.rows("create table hive.tr.u (id bigint)")


def test_partitions(engine: Trino, schema: str) -> None:
    engine.rows(
        "create table hive.tr.p with (partitioned_by = array['d', 'n']) as "
        "select * from (values (1, 'x', 10), (2, 'y', 11), (3, 'x', 12)) as q(id, d, n)"
    )
    assert engine.rows('select * from hive.tr."p$partitions" order by 1, 2') == [
        ["x", 10],
        ["x", 12],
        ["y", 11],
    ]
    assert engine.rows("select id from hive.tr.p where d = 'x' and n > 10") == [[3]]
    assert engine.rows("select id from hive.tr.p where d like 'x%' order by 1") == [[1], [3]]
    engine.rows("insert into hive.tr.p values (4, 'z', 13)")
    engine.rows("delete from hive.tr.p where d = 'z' and n = 13")
    engine.rows("call hive.system.create_empty_partition('tr', 'p', array['d', 'n'], array['e', '99'])")
    engine.rows("call hive.system.sync_partition_metadata('tr', 'p', 'FULL')")
    engine.rows("analyze hive.tr.p")
    found = {row[0]: row for row in engine.rows("show stats for hive.tr.p")}
    assert found["id"][5:] == ["1", "3"]
    assert found[None][4] == 3.0


def test_acid_tables(engine: Trino, schema: str) -> None:
    engine.rows("create table hive.tr.acid (id int) with (transactional = true, format = 'ORC')")
    engine.rows("insert into hive.tr.acid values 1, 2")
    engine.rows("update hive.tr.acid set id = 3 where id = 1")
    engine.rows("delete from hive.tr.acid where id = 2")
    assert engine.rows("select * from hive.tr.acid") == [[3]]


def test_iceberg_tables(engine: Trino, schema: str) -> None:
    engine.rows("create table iceberg.tr.i (id bigint, d varchar) with (partitioning = array['d'])")
    engine.rows("insert into iceberg.tr.i values (1, 'a'), (2, 'b')")
    engine.rows("update iceberg.tr.i set d = 'c' where id = 1")
    engine.rows("alter table iceberg.tr.i rename to iceberg.tr.j")
    assert engine.rows("select * from iceberg.tr.j order by 1") == [[1, "c"], [2, "b"]]
    engine.rows("create materialized view iceberg.tr.mv as select id from iceberg.tr.j")
    engine.rows("refresh materialized view iceberg.tr.mv")
    assert engine.rows("select * from iceberg.tr.mv order by 1") == [[1], [2]]
    engine.rows("drop materialized view iceberg.tr.mv")
    engine.rows("drop table iceberg.tr.j")


def test_our_hudi_tables(engine: Trino, ours: Server, tmp_path: Path) -> None:
    create_hudi_tables(tmp_path, ours.uri)
    assert engine.rows("show tables from hudi.lake") == [[name] for name in sorted(FORMS)]
    for name in FORMS:
        columns = {row[0]: row[1] for row in engine.rows(f"describe hudi.lake.{name}")}
        assert columns.items() >= {"id": "bigint", "dest": "varchar", "fare": "decimal(10,2)"}.items()
        found = engine.rows(f"select id, dest, fare from hudi.lake.{name} order by id")
        assert [tuple(row) for row in found] == ROWS
        assert engine.rows(f"select id from hudi.lake.{name} where dest = 'a b'") == [[2]]
