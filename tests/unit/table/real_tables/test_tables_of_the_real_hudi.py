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
from airflow_provider.table.files import read_footer
from airflow_provider.table.reading.incremental import Increment, increment
from airflow_provider.table.reading.slices import file_slices
from airflow_provider.table.reading.snapshots import rows_by_commits
from tests.real_hudi.fixtures.answers import plain_rows

FIXTURES = Path(__file__).parents[3] / "fixtures" / "real_hudi"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.zip"))

AS_TEXT = {"cow_timestamp_partitions": "ts", "cow_dates_as_folders": "ts"}
"""Columns that the JVM shows as text, because its key generator makes folder names of them."""
BY_REQUESTED_TIME = {"cow_at_once", "mor_at_once", "mor_resized_while_written"}
"""Tables whose past the JVM shows differently: it orders by requested times, this package by completion."""
CLEANED = "Cleaner cleaned up the timestamp of interest"
NO_CHANGES = "Incremental queries are not supported when meta fields are disabled"
NO_HFILE_LOGS = "Job aborted due to stage failure"
UNANSWERED = {
    "cow_archived_v6": ({"as of"}, CLEANED),
    "cow_archived_v8": ({"as of"}, CLEANED),
    "cow_archived_v8_by_1_0_2": ({"as of"}, CLEANED),
    "cow_archived_v9": ({"as of"}, CLEANED),
    "cow_archived_v9_by_1_1_1": ({"as of"}, CLEANED),
    "cow_no_meta_fields": ({"since"}, NO_CHANGES),
    "mor_archived": ({"as of"}, CLEANED),
    "mor_hfile_logs": ({"now", "as of", "since", "where"}, NO_HFILE_LOGS),
    "mor_no_meta_fields": ({"since"}, NO_CHANGES),
}
"""Tables of which the JVM answers some questions by an error: these questions, and the error's text.

It fails on its own HFile log blocks, which :func:`test_hfile_log_blocks_have_the_rows_of_other_log_blocks`
compares.
"""
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
            questions, error = UNANSWERED.get(self.name, (set(), ""))
            is_known = question in questions and error in theirs["error"]
            return None if is_known else f"{question}: the JVM has no answer: {theirs['error']}"
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
    return _opened(request.param, tmp_path_factory)


@pytest.fixture(params=[name for name in NAMES if name.startswith("mor")])
def answered_with_little_memory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Answered:
    found = _opened(request.param, tmp_path_factory)
    with Path(found.location, ".hoodie", "hoodie.properties").open("a") as properties:
        properties.write("\nhoodie.memory.merge.max.size=1\n")
    return found


def _opened(name: str, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    location = unpacked(name, tmp_path_factory.mktemp(name))
    return Answered(name, location, json.loads((FIXTURES / f"{name}.json").read_text()))


def unpacked(name: str, location: Path) -> str:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(location)
    return str(location)


def test_every_question_is_answered_as_by_the_jvm(answered: Answered) -> None:
    wrong = [found for found in _judged(answered) if found is not None]
    assert not wrong, "\n".join(wrong)


def test_the_commits_of_the_jvm_tell_how_many_rows_their_files_have(
    answered: Answered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.table.reading.snapshots._FILES_A_COMMIT", 0)
    table = HudiTable.open(answered.location)
    commits = {commit.requested_time for commit in table.timeline().commits()}
    for each in table.view().all_base_files():
        rows = read_footer(table.storage, each.path).num_rows
        told = rows if rows and each.instant in commits else None
        assert rows_by_commits(table, [each]) == told, each.path


def test_log_files_beyond_the_memory_are_answered_as_by_the_jvm(
    answered_with_little_memory: Answered,
) -> None:
    wrong = [found for found in _judged(answered_with_little_memory) if found is not None]
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


def test_what_the_jvm_leaves_unanswered_is_listed(answered: Answered) -> None:
    told = answered.answers
    asked = {"now": [told["now"]], "as of": told["as_of"].values(), "since": told["since"].values()}
    asked["where"] = [each["rows"] for each in told["where"]]
    failed = {question for question, found in asked.items() for each in found if "error" in each}
    assert failed == (UNANSWERED[answered.name][0] if answered.name in UNANSWERED else set())


def test_hfile_log_blocks_have_the_rows_of_other_log_blocks(tmp_path: Path) -> None:
    """The JVM wrote both tables by the same statements; it reads only the second one."""
    made = [HudiTable.open(unpacked(name, tmp_path / name)) for name in ("mor_hfile_logs", "mor_event_time")]
    assert [len(each.log_paths) for each in file_slices(made[0])] == [0, 2, 2]
    hfile, other = (_told_at_every_commit(table) for table in made)
    assert hfile == other
    assert [len(now) for now, _ in hfile] == [9, 10, 10]


def _told_at_every_commit(table: HudiTable) -> list[tuple[list[str], list[str]]]:
    """The rows as of each commit, and those that changed since."""
    return [
        (
            _in_order(snapshot(table, commit.requested_time)),
            _in_order(increment(table, commit.completion_time)),
        )
        for commit in table.timeline().commits()
    ]


def _in_order(found: Any) -> list[str]:
    return sorted(map(str, _rows(found)))


def _rows(found: Any) -> list[dict[str, Any]]:
    scanned = found.scanner() if isinstance(found, Increment) else found
    rows: list[dict[str, Any]] = scanned.to_table().to_pylist()
    return rows


def test_there_are_tables_of_every_version_and_type() -> None:
    made = {(json.loads((FIXTURES / f"{name}.json").read_text())["version"], name[:3]) for name in NAMES}
    assert made == {(version, kind) for version in (6, 8, 9) for kind in ("cow", "mor")}
