from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from airflow_provider.cli import app, compaction, main, output, services
from airflow_provider.concurrency import HeartbeatSettings, WriteSettings, begin_write
from airflow_provider.concurrency.plans import Service
from airflow_provider.exceptions import (
    CorruptTableError,
    InvalidInputError,
    NoSuchInstantError,
    NoSuchObjectError,
    TableServiceError,
    UnknownOperationError,
)
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.locks import open_lock
from airflow_provider.metastore import Column, open_metastore
from airflow_provider.services.cleaning import CleaningPolicy
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.hudi_options import TRIGGERS
from airflow_provider.table.properties import PROPERTIES_PATH, parse_properties
from airflow_provider.table.timeline.archived_timeline import HISTORY_FOLDER
from tests.unit.services.indexed_table import check_indexes, commit, indexed_table


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "t"), name="t", schema=pa.schema([("id", pa.int64())]), record_key=["id"]
    )


def call(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if isinstance(result.exception, TableServiceError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_write_under_way_is_seen_and_rolled_back(table: HudiTable) -> None:
    writer = begin_write(table, operation="UPSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(60)))
    writer.plan([FileGroupId("", "x-0")])
    (pending,) = call("heartbeats", table.location)
    assert (pending["instant"], pending["operation"], pending["alive"]) == (writer.instant, "UPSERT", True)
    left_alone = {"rolled_back": [], "deleted": [], "alive": [writer.instant], "dry_run": False}
    assert call("rollback", table.location) == left_alone, "a live writer is nobody's to roll back unasked"
    asked = ("rollback", table.location, writer.instant)
    assert call(*asked, "--dry-run") == {"rolled_back": [writer.instant], "dry_run": True}
    assert len(call("heartbeats", table.location)) == 1
    assert call(*asked) == {"rolled_back": [writer.instant], "dry_run": False}
    with pytest.raises(TableServiceError, match="rolled back"):
        call(*asked, "--dry-run")
    assert call("heartbeats", table.location) == []
    told = [(row["action"], row["state"]) for row in call("timeline", table.location)]
    assert told == [("commit", "done"), ("commit", "rolled back"), ("rollback", "done")]
    assert call("files", table.location) == []
    assert call("locks", table.location) == []
    writer.abort()


def test_a_table_and_an_instant_are_shown(table: HudiTable) -> None:
    written = ingest_arrow(table, pa.table({"id": [1, 2]}), "insert")
    shown = call("show", table.location)
    assert shown.items() >= {"type": "COPY_ON_WRITE", "file_groups": 1, "pending": []}.items()
    commit = call("show", table.location, written["instant"])
    assert (commit["operation"], commit["state"]) == ("INSERT", "completed")
    ((stat,),) = commit["metadata"]["partitionToWriteStats"].values()
    assert stat["numInserts"] == 2
    with pytest.raises(NoSuchInstantError):
        call("show", table.location, "20240101000000000")


def test_a_query_is_explained(table: HudiTable) -> None:
    for number in range(3):
        ingest_arrow(table, pa.table({"id": [number]}), "bulk_insert")
    told = call("explain", table.location, "--where", "id > 1")
    assert (told["listed_by"], told["steps"], told["files"]) == ("folders", [], 3)
    assert set(told["indexes"].values()) == {"absent"}
    schedule_index(table, ["files", "column_stats", "record_index"])
    assert "usable" not in call("explain", table.location)["indexes"].values()
    run_index(table)
    told = call("explain", table.location, "--where", "id > 1", "--where", "id <= 5")
    assert (told["listed_by"], told["files"], told["files_in_table"]) == ("files", 1, 3)
    assert told["steps"] == [{"index": "column_stats", "considered": 3, "skipped": 2, "of": "files"}]
    told = call("explain", table.location, "--where", "id in 0, 7")
    assert [step["index"] for step in told["steps"]] == ["record_index", "column_stats"]
    assert (told["files"], told["bytes"] < told["bytes_in_table"]) == (1, True)
    shown = CliRunner().invoke(app, ["explain", table.location, "--where", "id is null"])
    assert shown.exit_code == 0
    assert "column_stats: usable" in shown.output.replace("\n", " ")
    assert re.search(r"^where +id is null *$", shown.output, re.MULTILINE)
    with pytest.raises(InvalidInputError, match="is no filter"):
        call("explain", table.location, "--where", "id ~ 3")


def test_a_table_is_found_by_its_name(table: HudiTable, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metastore.db"
    metastore = open_metastore(url)
    metastore.create_database("lake")
    metastore.create_table("lake", "t", schema=[Column("id", "bigint")], location=table.location)
    metastore.close()
    assert call("--metastore", url, "show", "lake.t")["location"] == table.location
    with pytest.raises(InvalidInputError, match="--metastore"):
        call("show", "lake.t")


def test_the_holder_of_a_lock_is_shown_and_who_waits(table: HudiTable) -> None:
    first, second = (open_lock({}, table.storage) for _ in range(2))
    with first:
        waiting = threading.Thread(target=second.acquire)
        waiting.start()
        while len(call("locks", table.location)) < 2:
            time.sleep(0.01)
        assert [row["state"] for row in call("locks", table.location)] == ["held", "waits"]
    waiting.join()
    second.release()


def test_services_are_planned_and_run(table: HudiTable) -> None:
    instants = [
        ingest_arrow(table, pa.table({"id": [number, 100]}), "upsert")["instant"] for number in range(5)
    ]
    assert call("plan", table.location)["groups"] == [], "one file group cannot be packed"
    ingest_arrow(table, pa.table({"id": [200]}), "bulk_insert")
    planned = call("plan", table.location, "--sort-by", "id", "--schedule")
    assert [group["file_groups"] for group in planned["groups"]] == [2]
    assert call("plan", table.location)["pending"] == {planned["scheduled"]: "waits"}
    shown = call("show", table.location, planned["scheduled"])
    assert len(shown["plan"]["clusteringPlan"]["inputGroups"]) == 1
    call("rollback", table.location, planned["scheduled"])

    versions = ("--policy", "KEEP_LATEST_FILE_VERSIONS", "--retained", "1")
    call("savepoint", table.location, instants[3], "--comment", "before the move")
    assert call("show", table.location, instants[3])["operation"] == "UPSERT", "not that of its savepoint"
    told = call("clean", table.location, *versions, "--dry-run")
    assert len(told["files"]) == 3
    assert [held["files"] for held in told["held"]] == [1]
    assert [done["files_deleted"] for done in call("clean", table.location, *versions)] == [3]
    assert call("clean", table.location, *versions) == []

    assert call("restore", table.location, instants[3], "--dry-run")["files"] == 2
    asked = CliRunner().invoke(app, ["restore", table.location, instants[3]], input="n\n")
    assert asked.exit_code == 1
    assert len(call("restore", table.location, instants[3], "--yes")["undone"]) == 2
    assert sorted(snapshot(table).to_table()["id"].to_pylist()) == [0, 1, 2, 3, 100]
    (kept,) = call("savepoint", table.location, "--list")
    assert (kept["instant"], kept["comments"]) == (instants[3], "before the move")
    assert call("savepoint", table.location, instants[3], "--delete") == []
    assert call("archive", table.location, "--dry-run")["archived"] == []
    assert call("archive", table.location)["archived"] == []
    assert call("upgrade", table.location, "--down")["after"] == 8
    assert call("upgrade", table.location).items() >= {"before": 8, "after": 9}.items()


def test_an_archived_instant_is_shown(table: HudiTable) -> None:
    call(
        "options", table.location, "--set", "hoodie.keep.min.commits=1", "--set", "hoodie.keep.max.commits=2"
    )
    instants = [ingest_arrow(table, pa.table({"id": [number]}), "insert")["instant"] for number in range(4)]
    assert call("show", table.location, instants[0])["timeline"] == "active"
    assert instants[0] in call("archive", table.location)["archived"]
    shown = call("show", table.location, instants[0])
    assert (shown["timeline"], shown["state"], shown["operation"]) == ("archived", "completed", "INSERT")
    ((stat,),) = shown["metadata"]["partitionToWriteStats"].values()
    assert stat["numInserts"] == 1


def test_what_failed_is_shown_and_cleared(table: HudiTable) -> None:
    table.storage.put(f"{HISTORY_FOLDER}/manifest_1", b"damaged")
    with pytest.raises(CorruptTableError):
        call("archive", table.location)
    (failed,) = call("failures", table.location)
    assert (failed["service"], failed["input"]) == ("archival", "an empty timeline")
    assert "manifest_1" in failed["reason"]
    assert call("failures", table.location, "--clear", "archival") == []


def test_options_of_a_table_are_shown_and_changed(table: HudiTable) -> None:
    key, versions = "hoodie.clean.commits.retained", "hoodie.cleaner.fileversions.retained"

    def said(*changes: str) -> dict[str, tuple[str | None, str | None]]:
        told = call("options", table.location, *changes)
        return {each["option"]: (each["value"], each["from"]) for each in told}

    assert said()[key] == ("10", "default")
    assert said("--set", f"{key}=20", "--set", "hoodie.write.lock.wait_time_ms=1000")[key] == ("20", "table")
    found = HudiTable.open(table.location)
    assert (found.hudi_options.values[key], found.hudi_options.lock["timeout_seconds"]) == (20, 1.0)
    assert found.config.create_schema == table.config.create_schema
    with pytest.raises(InvalidInputError, match="retained"):
        said("--set", f"{versions}=2")
    assert said("--unset", "hoodie.cleaner.commits.retained", "--set", f"{versions}=2")[key][1] == "default"
    assert parse_properties(table.storage.read(PROPERTIES_PATH).decode()).keys() & {key, versions} == set()
    with pytest.raises(UnknownOperationError, match=key):
        said("--set", "hoodie.clean.commits.retaind=2")
    with pytest.raises(InvalidInputError, match="whole number"):
        said("--set", f"{key}=many")
    with begin_write(
        table, operation="UPSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(60))
    ) as writer:
        with pytest.raises(InvalidInputError, match=f"while {writer.instant} are in flight"):
            said("--unset", "hoodie.write.lock.wait_time_ms")
        writer.abort()
    assert ingest_arrow(HudiTable.open(table.location), pa.table({"id": [1]}), "insert")["instant"]


def test_a_metadata_table_that_is_there_cannot_be_switched_off(tmp_path: Path) -> None:
    table = indexed_table(tmp_path / "trips")
    with pytest.raises(InvalidInputError, match="has the index files, record_index; drop it"):
        call("options", table.location, "--set", "hoodie.metadata.enable=false")
    call("index", "drop", table.location)
    call("options", table.location, "--set", "hoodie.metadata.enable=false")
    assert HudiTable.open(table.location).hudi_options.index.enabled is False


def test_a_metadata_table_is_compacted(tmp_path: Path) -> None:
    table = indexed_table(tmp_path / "trips")
    commit(table, 1)
    assert call("compact", table.location) == []
    always = ("--max-delta-commits", "1")
    told = call("compact", table.location, *always, "--dry-run")
    assert (told["pending"], told["due"]["file_groups"]) == ([], 2)
    assert [done["file_groups"] for done in call("compact", table.location, *always)] == [2]
    check_indexes(table)


def test_consumers_of_a_metastore_are_seen_waited_for_and_forgotten(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metastore.db"
    metastore = open_metastore(url)
    metastore.register_consumer("reporting")
    metastore.create_database("lake")
    metastore.register_consumer("replica", expiry_seconds=600)
    metastore.create_database("sea")
    time.sleep(1.1)  # the time to live is so short that all events are too old
    on = ("--db", url)
    slow, fast = call("metastore", "consumers", *on)[::-1]
    assert slow.items() >= {"consumer": "reporting", "behind": 2, "live": True}.items()
    assert slow["silent_seconds"] >= 1
    assert (slow["holds_back_retention"], fast["holds_back_retention"]) == (True, False)
    assert (fast["consumer"], fast["behind"], fast["expiry_seconds"]) == ("replica", 1, 600)
    first = slow["event_id"] + 1
    held = {"oldest_event_id": first, "held_back_by": ["reporting"], "left_behind": []}
    (purged,) = call("metastore", "purge", *on, "--event-ttl", "0")
    assert purged == {"removed": slow["event_id"], **held}
    shown = CliRunner().invoke(app, ["metastore", "purge", *on, "--event-ttl", "0"])
    assert "reporting" in shown.output
    assert "(" not in shown.output
    assert call("metastore", "forget", "reporting", *on) == [{"forgotten": "reporting"}]
    (purged,) = call("metastore", "purge", *on, "--event-ttl", "0")
    assert (purged["removed"], purged["held_back_by"]) == (1, ["replica"])
    metastore.close()


def test_an_error_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["table-services", "timeline", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "NotATableError" in capsys.readouterr().err


def test_indexes_are_built_shown_and_dropped(table: HudiTable) -> None:
    ingest_arrow(table, pa.table({"id": [1, 2]}), "insert")
    assert call("index", "show", table.location) == []
    (planned,) = call("index", "build", table.location, "record_index", "--schedule")
    (done,) = call("index", "build", table.location, "record_index")
    assert (done["instant"], done["indexes"]) == (planned["instant"], ["files", "record_index"])
    shown = {each["index"]: each["state"] for each in call("index", "show", table.location)}
    assert shown == {"files": "complete", "record_index": "complete"}
    (dropped,) = call("index", "drop", table.location)
    assert dropped["indexes"] == ["files", "record_index"]
    assert call("index", "drop", table.location) == []
    with pytest.raises(UnknownOperationError, match="'record_indx' is not known; known: files, "):
        call("index", "build", table.location, "record_indx")


def test_the_choices_are_those_of_the_engine() -> None:
    """The command line lists the choices itself, because it starts without the engine."""
    assert set(get_args(services.PolicyName)) == set(CleaningPolicy)
    assert set(get_args(services.ServiceName)) == set(Service)
    assert get_args(compaction.TriggerName) == TRIGGERS


@pytest.mark.parametrize("command", [("consumers",), ("forget", "replica"), ("purge",)])
def test_who_looks_makes_no_metastore(tmp_path: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(NoSuchObjectError, match="there is no such database yet; check the URL"):
        call("metastore", *command, "--db", f"sqlite:///{tmp_path}/typo.db")
    with pytest.raises(NoSuchObjectError, match="there is no such database yet"):
        call("--metastore", f"sqlite:///{tmp_path}/typo.db", "show", "lake.flights")
    assert list(tmp_path.iterdir()) == []


def test_at_a_hundred_columns_an_instant_is_one_word(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.console, "_width", 100)
    writer = begin_write(table, operation="UPSERT", settings=WriteSettings(heartbeat=HeartbeatSettings(60)))
    told = CliRunner().invoke(app, ["heartbeats", table.location]).output
    assert writer.instant in told
    assert max(map(len, told.splitlines())) <= 100
    writer.abort()


def test_seconds_are_told_to_the_millisecond(capsys: pytest.CaptureFixture[str]) -> None:
    output.show([{"age_seconds": 819.8319795131683}], as_json=False)
    assert "819.832 " in capsys.readouterr().out
