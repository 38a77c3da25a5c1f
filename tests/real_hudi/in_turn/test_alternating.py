"""This package and the JVM's Hudi write one table in turn; after each step five readers show the model.

``SOAK=1`` makes every kind of change to every table.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.real_hudi.in_turn.readers import Row
from tests.real_hudi.in_turn.shared_table import (
    ALL_INDEXES,
    ALL_INDEXES_OF_THE_JVM,
    SCHEMA,
    SharedTable,
    row,
    rows,
)
from tests.real_hudi.jvm import HudiError, Session
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table

START = rows(range(90), 0)
NAMES = ", ".join(SCHEMA.names)


def ours_with_all_indexes(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable.of_ours(hudi, location, START, ALL_INDEXES)
    shared.always(ALL_INDEXES_OF_THE_JVM)
    return shared


def ours_with_the_defaults_of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    """With its defaults a write of the JVM drops the bloom filters and the record index."""
    return SharedTable.of_ours(hudi, location, START, ALL_INDEXES)


def theirs_with_all_indexes(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable(hudi, location)
    shared.always(ALL_INDEXES_OF_THE_JVM)
    shared.theirs(START, mode="overwrite")
    return shared


def insert_and_update(shared: SharedTable, turn: int) -> None:
    new = rows(range(600 + turn * 20, 609 + turn * 20), 40000, 100 * turn)
    shared.sql(f"insert into {{t}} ({NAMES}) values {in_sql(new)}")
    shared.add(new)
    small = [key for key, each in shared.model.items() if each["part"] == "p1" and each["v"] < 50]
    shared.sql("update {t} set v = v + 100000 where part = 'p1' and v < 50")
    for key in small:
        shared.change([key], v=shared.model[key]["v"] + 100000)


def merge(shared: SharedTable, turn: int) -> None:
    changed = [*rows(range(0, 60, 5), 50000, 100 * turn), *rows(range(700, 704), 50000, 1)]
    shared.sql(
        f"merge into {{t}} t using (select * from values {in_sql(changed)} as s({NAMES})) s on t.id = s.id "
        "when matched then update set v = s.v, name = s.name, amount = s.amount, ts = s.ts "
        "when not matched then insert *"
    )
    shared.add(changed)


def delete(shared: SharedTable, turn: int) -> None:
    shared.sql("delete from {t} where v % 5 = 0 and v < 2000")
    shared.drop(key for key, each in shared.model.items() if each["v"] % 5 == 0 and each["v"] < 2000)


def overwrite(shared: SharedTable, turn: int) -> None:
    shared.theirs(rows(range(2, 200, 9 * 3), 60000, 100 * turn), "insert_overwrite")


def bulk_insert(shared: SharedTable, turn: int) -> None:
    shared.theirs(rows(range(900, 920), 70000, 100 * turn), "bulk_insert")


Change = Callable[[SharedTable, int], None]
CHANGES: list[Change] = [insert_and_update, merge, delete, overwrite, bulk_insert]


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (ours_with_all_indexes, [insert_and_update, merge]),
        (ours_with_the_defaults_of_the_jvm, [delete, overwrite]),
        (theirs_with_all_indexes, [bulk_insert, merge]),
    ],
    ids=lambda made: getattr(made, "__name__", ""),
)
def test_rounds_of_writes(
    made: Callable[[Session, Path], SharedTable], changes: list[Change], hudi: Session, location: Path
) -> None:
    shared = made(hudi, location)
    chosen = random.Random(7)
    for turn, theirs in enumerate(CHANGES if "SOAK" in os.environ else changes, start=1):
        theirs(shared, turn)
        shared.check()
        ours = [*rows(range(turn, 200, 23), 2000 + turn, 100 * turn + 50), row(1000 + turn, 3000)]
        shared.ours([*ours, row(2000 + turn, 1, part=f"new{turn}")])
        shared.ours_deletes(chosen.sample(sorted(shared.model), 6))
        shared.check()
    check_metadata_table(hudi, shared.table)


def test_rows_of_ours_without_an_ordering_value(hudi: Session, location: Path) -> None:
    """Such rows are older than all others. The JVM reads them, and itself fails when it writes over them."""
    shared = SharedTable.of_ours(hudi, location, rows(range(9), 0))
    shared.ours([{**row(number, 100), "ts": None} for number in (20, 21, 22)])
    shared.check()
    with pytest.raises(HudiError, match=r"java.lang.Integer cannot be cast to class java.lang.Long"):
        shared.theirs([row(20, 200, 1)])
    shared.theirs([row(30, 200, 1)])  # the next write rolls it back
    shared.ours(rows((20, 21, 22), 300, 1))
    shared.theirs([row(20, 400, 2)])
    shared.check()


def in_sql(changed: Iterable[Row]) -> str:
    """Rows as VALUES has them."""
    suffixes = {int: "L", float: "D", str: ""}
    return ", ".join(
        f"({', '.join(f'{each[name]!r}{suffixes[type(each[name])]}' for name in SCHEMA.names)})"
        for each in changed
    )
