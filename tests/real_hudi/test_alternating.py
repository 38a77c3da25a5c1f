"""Ours and the JVM's Hudi write one table in turn; after every step five readers show what the model has."""

from __future__ import annotations

from pathlib import Path

import pytest

from .jvm import Session
from .shared_table import ALL_INDEXES, ALL_INDEXES_OF_THE_JVM, SharedTable, row, rows


@pytest.fixture
def of_ours(hudi: Session, location: Path) -> SharedTable:
    shared = SharedTable.of_ours(hudi, location, rows(range(90), 0), ALL_INDEXES)
    shared.options |= ALL_INDEXES_OF_THE_JVM
    return shared


@pytest.fixture
def of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    return SharedTable.of_the_jvm(hudi, location, rows(range(90), 0), ALL_INDEXES_OF_THE_JVM)


@pytest.mark.parametrize("made_by", ["of_ours", "of_the_jvm"])
def test_upserts_in_turn(made_by: str, request: pytest.FixtureRequest) -> None:
    shared: SharedTable = request.getfixturevalue(made_by)
    shared.check()
    for turn in range(2):
        shared.theirs(
            [*rows(range(turn, 90, 7), 1000 + turn, 2), *rows(range(100 + turn * 10, 104 + turn * 10), 0)]
        )
        shared.check()
        shared.ours([*rows(range(turn, 120, 5), 2000 + turn, 3), row(200 + turn, 1, part="new")])
        shared.ours_deletes(sorted(shared.model)[turn::30])
        shared.check()
