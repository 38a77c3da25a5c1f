"""Tables of both types by the JVM's Hudi: this package shows the same rows as the JVM.

``make fixtures`` makes the tables and the JVM's answers; see :mod:`tests.real_hudi.fixtures`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from airflow_provider.exceptions import TableServiceError
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.incremental import Increment, increment
from tests.real_hudi.fixtures.answers import plain_rows

FIXTURES = Path(__file__).parents[3] / "fixtures" / "real_hudi"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.zip"))

AS_TEXT = {"cow_timestamp_partitions": "ts", "cow_dates_as_folders": "ts"}
"""Columns that the JVM shows as text, because its key generator makes folder names of them."""
BY_REQUESTED_TIME = {"cow_at_once", "mor_at_once", "mor_resized_while_written"}
"""Tables whose past the JVM shows differently: it orders by requested times, this package by completion."""
ENCODED = {"cow_encoded": "part"}
"""Columns that the JVM's incremental query, and no other query, shows with the folder's encoded name."""


@dataclass(frozen=True)
class Answered:
    """A table, and the JVM's answers about it.

    :param name: the name of its files.
    :param location: the folder into which it is unpacked.
    :param answers: the JVM's answers, by query.
    """

    name: str
    location: str
    answers: dict[str, Any]

    def judge(self, question: str, theirs: Any, ours: Callable[[HudiTable], Any]) -> str | None:
        """The mistake in this package's answer; None when there is none."""
        if isinstance(theirs, dict) and "error" in theirs:
            return None  # the JVM has no answer
        if question == "as of" and self.name in BY_REQUESTED_TIME:
            return None
        if question == "since" and (column := ENCODED.get(self.name)):
            theirs = [{**row, column: row[column] and unquote(row[column])} for row in theirs]
        try:
            found = plain_rows(map(self._as_the_jvm, ours(HudiTable.open(self.location))))
        except TableServiceError as error:
            return f"{question}: {type(error).__name__}: {error}"
        missing = [row for row in theirs if row not in found]
        more = [row for row in found if row not in theirs]
        wrong = missing or more or len(found) != len(theirs)
        return f"{question}: {missing[:2]} are missing, {more[:2]} too many" if wrong else None

    def _as_the_jvm(self, row: dict[str, Any]) -> dict[str, Any]:
        column = AS_TEXT.get(self.name)
        return row if column is None else {**row, column: str(row[column])}


@pytest.fixture(scope="module", params=NAMES)
def answered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    name: str = request.param
    location = tmp_path_factory.mktemp(name)
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(location)
    return Answered(name, str(location), json.loads((FIXTURES / f"{name}.json").read_text()))


def test_every_question_is_answered_as_by_the_jvm(answered: Answered) -> None:
    wrong = [found for found in _judged(answered) if found is not None]
    assert not wrong, "\n".join(wrong)


def _judged(answered: Answered) -> Iterator[str | None]:
    answers = answered.answers
    yield answered.judge("now", answers["now"], lambda table: _rows(snapshot(table)))
    for at, theirs in answers["as_of"].items():
        yield answered.judge("as of", theirs, lambda table, at=at: _rows(snapshot(table, at)))
    for after, theirs in answers["since"].items():
        yield answered.judge("since", theirs, lambda table, after=after: _rows(increment(table, after)))
    for each in answers["where"]:
        where = [tuple(each["condition"])]
        yield answered.judge(
            "where", each["rows"], lambda table, where=where: _rows(snapshot(table, where=where))
        )


def _rows(found: Any) -> list[dict[str, Any]]:
    scanned = found.scanner() if isinstance(found, Increment) else found
    rows: list[dict[str, Any]] = scanned.to_table().to_pylist()
    return rows


def test_there_are_tables_of_every_version_and_type() -> None:
    made = {(json.loads((FIXTURES / f"{name}.json").read_text())["version"], name[:3]) for name in NAMES}
    assert made == {(version, kind) for version in (6, 8, 9) for kind in ("cow", "mor")}
