"""Incremental reads of tables and archived timelines that the JVM's Hudi wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from airflow_provider.exceptions import CheckpointExpiredError
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.reading.incremental import increment
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import TIMELINE_FOLDER
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER, archived_commits
from airflow_provider.table.timeline.instant import Action
from tests.unit.table.conftest import JvmTables, told_of_jvm_tables
from tests.unit.table.histories import History

BEGINNING = "20000101000000000"
COPY_ON_WRITE = ["rs_cow_v8_simple", "rs_cow_v9_txns_simple_nometa", "rs_cow_v9_txns_simple_meta"]


@pytest.mark.parametrize("name", COPY_ON_WRITE)
def test_increments_of_the_jvm_tables(name: str, jvm_tables: JvmTables) -> None:
    table = HudiTable.open(str(jvm_tables.table(name)))
    (known,) = [each for each in told_of_jvm_tables("inventory.json") if each["zip"] == f"{name}.zip"]
    commits = [each for each in known["instants"] if "incremental_after_rows" in each]
    assert increment(table, BEGINNING).scanner().count_rows() == known["incremental_from_0_rows"]
    for each in commits:
        for order, start in (("completion", each["completed"]), ("fenced", each["requested"])):
            found = increment(table, start, order=order)
            assert found.scanner().count_rows() == each["incremental_after_rows"], (order, start)
    assert increment(table).scanner().count_rows() == snapshot(table).count_rows()


@pytest.mark.parametrize("name", COPY_ON_WRITE)
def test_hudi_rs_tells_the_same_rows_in_every_window(name: str, jvm_tables: JvmTables) -> None:
    table = HudiTable.open(str(jvm_tables.table(name)))
    ends = [commit.completion_time or "" for commit in table.timeline().commits()]
    for first, start in enumerate([BEGINNING, *ends]):
        for end in ends[first:]:
            options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
            options = options.with_start_timestamp(start).with_end_timestamp(end)
            batches = HudiTableBuilder.from_base_uri(table.location).build().read(options)
            theirs = pa.Table.from_batches(batches).to_pylist() if batches else []
            ours = increment(table, start, end=end).scanner(meta_columns=True).to_table().to_pylist()
            names = [name for name in table.schema.names if not name.startswith("_")]
            assert _sorted(ours, names) == _sorted(theirs, names), (start, end)


def _sorted(rows: Iterable[dict[str, Any]], names: list[str]) -> list[str]:
    return sorted(repr([(name, row[name]) for name in ["_hoodie_commit_time", *names]]) for row in rows)


# --- the archived timeline


def told(history: History, start: str | None, order: str) -> set[str]:
    return set(increment(history.table, start, order=order).scanner().to_table()["v"].to_pylist())


def archive(history: History, source: Path, requested_from: str) -> None:
    """Replace the instants before a time by the archived timeline of a real table."""
    shutil.copytree(source / HISTORY_FOLDER, Path(history.table.location) / HISTORY_FOLDER)
    for name in history.storage.names(TIMELINE_FOLDER):
        if name != "history" and name < requested_from:
            history.storage.delete(f"{TIMELINE_FOLDER}/{name}")


def test_the_archived_timeline_of_the_jvm(jvm_tables: JvmTables) -> None:
    storage = Storage(str(jvm_tables.table("jvm_mor_v9_mdt_legacy_hfile")))
    found = list(archived_commits(storage))
    assert [i.action for i in found] == [
        Action.DELTA_COMMIT,
        Action.DELTA_COMMIT,
        Action.DELTA_COMMIT,
        Action.COMMIT,
        Action.REPLACE_COMMIT,
    ]
    assert found[-1].requested_time == "20250922140615845"
    assert found[-1].completion_time == "20250922140618382"
    assert list(archived_commits(storage, completed_after="20250922140615795")) == found[-1:]
    assert list(archived_commits(storage, completed_after="20250922140618382")) == []
    assert list(archived_commits(storage, requested_after="20250922140613405")) == found[-1:]
    assert list(archived_commits(storage, requested_after="20250922140615845")) == []


@pytest.mark.parametrize(
    ("order", "last"), [("completion", "20250922140618382"), ("fenced", "20250922140615845")]
)
def test_a_checkpoint_before_what_was_archived_has_expired(
    history: History, jvm_tables: JvmTables, order: str, last: str
) -> None:
    history.commit({("a", 1): "archived"})
    history.clock = 1000 * 86400 * 1000  # long after the instants that the JVM archived
    kept = history.commit({("a", 2): "kept"})
    archive(history, jvm_tables.table("jvm_mor_v9_mdt_legacy_hfile"), kept.instant)
    before = str(int(last) - 1)
    with pytest.raises(
        CheckpointExpiredError, match=r"20250922140615845.* was archived.*start=None"
    ) as raised:
        increment(history.table, before, order=order)
    assert raised.value.details == {"location": history.table.location, "checkpoint": before}
    assert told(history, last, order) == {"kept"}
    assert told(history, None, order) == {"archived", "kept"}, "the remedy: a snapshot"
    with pytest.raises(CheckpointExpiredError, match="was archived"):
        increment(history.table, order=order, end=before)
    # A window that ends before the archived commit does not need it.
    assert increment(history.table, BEGINNING, order=order, end=BEGINNING).commits == ()


def test_an_instant_that_archival_has_not_taken_off_yet_is_read(
    history: History, jvm_tables: JvmTables
) -> None:
    history.commit({("a", 1): "1"})
    storage = history.storage
    archive(history, jvm_tables.table("jvm_mor_v9_mdt_legacy_hfile"), "")
    (name,) = [n for n in storage.names(TIMELINE_FOLDER) if n.endswith(".commit")]
    for instant in archived_commits(storage):
        path = f"{TIMELINE_FOLDER}/{instant.requested_time}_{instant.completion_time}.{instant.action}"
        storage.put(path, storage.read(f"{TIMELINE_FOLDER}/{name}"))
    assert len(increment(history.table, BEGINNING).commits) == 6
