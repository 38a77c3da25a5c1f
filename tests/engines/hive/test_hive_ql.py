"""Hive QL 4.0.1 on our metastore, statement by statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.engines.conftest import Server
from tests.engines.hive.hive_ql import TRANSACTIONS, run_statements

# The output of each statement; None if the test checks it below, or not at all.
PRINTED: Mapping[str, Sequence[str] | None] = {
    "create database hq": [],
    "use hq": [],
    "create table t (id bigint comment 'the id', v string)": [],
    "show databases": None,
    "show tables": ["t"],
    "describe t": ["id bigint the id", "v string"],
    "insert into t values (1, 'a'), (2, 'b')": [],
    "select * from t order by id": ["1 a", "2 b"],
    "create table c as select id + 1 as next from t": [],
    "select * from c order by next": ["2", "3"],
    "alter table t add columns (w int)": [],
    "alter table t rename to t2": [],
    "select * from t2 order by id": ["1 a NULL", "2 b NULL"],
    "truncate table c": [],
    "select next from c": [],
    "create external table e (id int) partitioned by (d string, n int) stored as textfile": [],
    "alter table e add partition (d='a', n=1) partition (d='a', n=2)": [],
    "insert into e partition (d='z', n=9) values (7)": [],
    "show partitions e": ["d=a/n=1", "d=a/n=2", "d=z/n=9"],
    "show partitions e partition (d='a')": ["d=a/n=1", "d=a/n=2"],
    "alter table e partition (d='a', n=2) rename to partition (d='c', n=2)": [],
    "select * from e": ["7 z 9"],
    "msck repair table e": [],
    "describe formatted e": None,
    "create view vv as select id from t2": [],
    "select * from vv order by id": ["1", "2"],
    "create table acid (id int, v string) stored as orc tblproperties ('transactional'='true')": [],
    "insert into acid values (1, 'a'), (2, 'b'), (3, 'x')": [],
    "update acid set v = 'c' where id = 1": [],
    "delete from acid where id = 2": [],
    "select * from acid order by id": ["1 c", "3 x"],
    "select nope from t2": [],
    "show locks": None,
    "drop view vv": [],
    "drop database hq cascade": [],
}


def test_each_statement(ours: Server, tmp_path: Path) -> None:
    lines, errors = run_statements(list(PRINTED), ours.port, tmp_path, ours.warehouse, TRANSACTIONS)
    printed = {
        statement: [" ".join(line.split()) for line in found]
        for statement, found in zip(PRINTED, lines, strict=True)
    }
    expected = {statement: lines for statement, lines in PRINTED.items() if lines is not None}
    assert {statement: printed[statement] for statement in expected} == expected, errors
    assert {"default", "hq"} <= set(printed["show databases"])
    assert {"Table Type: EXTERNAL_TABLE", "numPartitions 3"} <= set(printed["describe formatted e"])
    assert len(printed["show locks"]) == 1  # the line of its titles
    [error] = errors
    assert "Invalid table alias or column reference 'nope'" in error
