"""Commands that run services work like the operators: with the table's options, if these allow it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from airflow_provider.cli import app
from airflow_provider.exceptions import IndexCatchUpTimeoutError, InvalidInputError, NoSuchInstantError
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.arrow import ArrowRows
from airflow_provider.ingestion.write_rows import write_rows
from airflow_provider.locks import open_lock
from airflow_provider.metastore import Column, TxnState, open_metastore
from airflow_provider.table import HudiTable
from tests.ingestion_contract.interleaving import Clustering
from tests.unit.indexing.jvm import JvmWrite
from tests.unit.test_cli import call

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


def table_with(tmp_path: Path, **options: Any) -> HudiTable:
    """A table with these options; their names lack ``hoodie.`` and have ``__`` for dots."""
    return HudiTable.create(
        str(tmp_path / "t"),
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        hudi_options={f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()},
    )


def write(table: HudiTable, *ids: int, operation: str = "upsert") -> str:
    rows = pa.table({"id": list(ids), "city": [f"city {id_}" for id_ in ids]}, SCHEMA)
    return str(ingest_arrow(table, rows, operation)["instant"])


# --- the table's options ------------------------------------------------------------------------


def test_a_clean_keeps_what_the_table_says(tmp_path: Path) -> None:
    table = table_with(tmp_path, clean__policy="KEEP_LATEST_BY_HOURS", clean__hours__retained=720)
    for _ in range(13):
        write(table, 1)
    assert call("clean", table.location, "--dry-run")["files"] == []
    assert call("clean", table.location) == []
    assert len(call("clean", table.location, "--policy", "KEEP_LATEST_COMMITS", "--dry-run")["files"]) == 2
    assert call("clean", table.location, "--retained", "1000", "--dry-run")["files"] == [], "hours"


def test_a_merge_on_read_table_is_compacted_as_the_table_says(tmp_path: Path) -> None:
    options = {"hoodie.compact.inline.max.delta.commits": 2}
    table = HudiTable.create(
        str(tmp_path / "t"),
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        table_type="merge_on_read",
        hudi_options=options,
    )
    for _ in range(2):
        write(table, 1)
    told = call("compact", table.location, "--dry-run")
    assert (told["of_table"]["due"]["log_files"], told["pending"]) == (1, [])
    assert call("compact", table.location, "--delta-commits", "3") == []
    (done,) = call("compact", table.location)
    assert (done["file_groups"], done["records"]) == (1, 1)
    (left,) = call("files", table.location)
    assert (left["instant"], left["log_files"]) == (done["instant"], [])
    assert call("failures", table.location, "--clear", "table-compaction") == []


def merge_on_read(tmp_path: Path) -> HudiTable:
    """A table with one file group, to which an upsert has appended a log file."""
    table = HudiTable.create(
        str(tmp_path / "t"), name="t", schema=SCHEMA, record_key=["id"], table_type="merge_on_read"
    )
    for _ in range(2):
        write(table, 1)
    return table


def test_a_compaction_is_planned_now_and_executed_later(tmp_path: Path) -> None:
    table = merge_on_read(tmp_path)
    always = ("compact", table.location, "--delta-commits", "1", "--schedule")
    assert call("compact", table.location, "--schedule") == {"scheduled": None}, "five delta commits"
    assert call("compact", table.location, "--run") == []
    first = call(*always)["scheduled"]
    assert call(*always) == {"scheduled": None}, "the file group is planned"
    assert call("compact", table.location, "--dry-run")["of_table"] == {"pending": [first], "due": None}
    (done,) = call("compact", table.location, "--run")
    assert (done["instant"], done["file_groups"]) == (first, 1)
    write(table, 1)
    second = call(*always)["scheduled"]
    assert call("compact", table.location, "--run", first) == [done], "it has completed"
    (again,) = call("compact", table.location, "--run", second)
    assert (again["instant"], again["records"]) == (second, 1)
    with pytest.raises(NoSuchInstantError):
        call("compact", table.location, "--run", "20260101000000000")


@pytest.mark.parametrize(
    ("flags", "is_due"),
    [
        (("--delta-commits", "2"), True),
        (("--trigger", "NUM_AND_TIME", "--delta-commits", "2", "--delta-seconds", "86400"), False),
        (("--trigger", "NUM_OR_TIME", "--delta-commits", "2", "--delta-seconds", "86400"), True),
        (("--delta-commits", "2", "--min-log-files", "2"), False),
        (("--delta-commits", "2", "--min-log-bytes", "1000000"), False),
        (("--delta-commits", "2", "--partition", "city=*"), False),
        (("--delta-commits", "2", "--strategy", "LogFileNumBasedCompactionStrategy"), True),
        (("--delta-commits", "2", "--max-io-bytes", "1"), True),
    ],
)
def test_flags_say_when_a_compaction_is_due_and_of_what(
    tmp_path: Path, flags: tuple[str, ...], is_due: bool
) -> None:
    table = merge_on_read(tmp_path)
    due = call("compact", table.location, "--dry-run", *flags)["of_table"]["due"]
    assert (due is not None) is is_due


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--schedule", "--run"), "give one of --schedule, --run and --dry-run"),
        (("20260101000000000",), "a plan goes with --run"),
    ],
)
def test_a_compaction_that_is_asked_for_in_two_ways_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    answer = CliRunner().invoke(app, ["compact", merge_on_read(tmp_path).location, *arguments])
    assert answer.exit_code == 2
    assert told in " ".join(answer.output.replace("│", " ").split())


def test_a_compaction_by_an_unknown_strategy_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.compaction\.strategy must be: .*, not 'Best'"):
        call("compact", merge_on_read(tmp_path).location, "--strategy", "Best")


def test_a_clustering_is_planned_as_the_table_says(tmp_path: Path) -> None:
    table = table_with(
        tmp_path,
        clustering__plan__strategy__sort__columns="city,id",
        layout__optimize__strategy="hilbert",
        clustering__plan__strategy__target__file__max__bytes=7_000_000,
    )
    for number in range(2):
        write(table, number, operation="bulk_insert")
    planned = call("plan", table.location, "--schedule")
    plan = call("show", table.location, planned["scheduled"])["plan"]["clusteringPlan"]
    assert _strategy(plan) == ("city,id", "hilbert", 7_000_000)
    call("rollback", table.location, planned["scheduled"])
    given = ("--sort-by", "id", "--layout", "linear")
    planned = call("plan", table.location, *given, "--schedule")
    plan = call("show", table.location, planned["scheduled"])["plan"]["clusteringPlan"]
    assert _strategy(plan) == ("id", "linear", 7_000_000)


def _strategy(plan: dict[str, Any]) -> tuple[str, str, int]:
    settings = json.loads(plan["extraMetadata"]["table_services.clustering"])
    return ",".join(settings["sort_by"]), settings["layout"], settings["target_file_size"]


def test_the_build_of_an_index_waits_as_long_as_the_table_says(tmp_path: Path) -> None:
    table = table_with(tmp_path, metadata__index__check__timeout__seconds=1)
    write(table, 1)
    url = f"sqlite:///{tmp_path}/metastore.db"
    metastore = open_metastore(url)
    metastore.create_database("lake")
    metastore.close()
    pending = JvmWrite(table).begin()
    lock = {"provider": "metastore", "url": url, "database": "lake", "table": "t"}
    with pytest.raises(IndexCatchUpTimeoutError, match=pending.instant):
        call("--lock", json.dumps(lock), "index", "build", table.location, "files")


def test_the_lock_that_is_shown_is_the_tables(tmp_path: Path) -> None:
    table = table_with(tmp_path, write__lock__provider="InProcessLockProvider")
    with open_lock(table.hudi_options.lock, table.storage):
        assert [row["lock"] for row in call("locks", table.location)] == ["in_process"]


# --- rollback -----------------------------------------------------------------------------------


def test_a_rollback_deletes_what_reverts_have_left(tmp_path: Path) -> None:
    table = table_with(tmp_path)
    write(table, 1, 2)
    write(table, 3, operation="bulk_insert")
    clustering = Clustering(table, "", outputs=2)

    @contextmanager
    def overtaken(_: object) -> Iterator[None]:
        clustering.commit()
        yield

    job = IngestJob.of(table.location, on_rewrite="revert")
    data = pa.table({"id": [1], "city": ["new"]}, SCHEMA)
    write_rows(job, table, ArrowRows.of(job, table, data), around=overtaken)
    left = sorted(path.name for path in Path(table.location).glob(f"*_{clustering.instant}.parquet"))
    assert len(left) == 2
    assert call("rollback", table.location)["deleted"] == [], "a reader may be on them"
    long_ago = ("--reverted-after", "0")
    assert sorted(call("rollback", table.location, *long_ago, "--dry-run")["deleted"]) == left
    assert sorted(call("rollback", table.location, *long_ago)["deleted"]) == left
    assert call("rollback", table.location, *long_ago)["deleted"] == []


def test_a_rollback_ends_transactions_that_timed_out(tmp_path: Path) -> None:
    table = table_with(tmp_path)
    url = f"sqlite:///{tmp_path}/metastore.db"
    with closing(open_metastore(url)) as metastore:
        metastore.create_database("lake")
        metastore.create_table("lake", "t", schema=[Column("id", "bigint")], location=table.location)
        txn_id = metastore.open_txn("somebody", "there", timeout_seconds=0.05)
        time.sleep(0.1)
        call("--metastore", url, "rollback", table.location)
        call("--metastore", url, "rollback", "lake.t", "--dry-run")
        assert metastore.get_txn(txn_id).state is TxnState.OPEN
        call("--metastore", url, "rollback", "lake.t")
        assert metastore.get_txn(txn_id).state is TxnState.ABORTED


# --- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["files", "timeline"])
def test_nothing_is_cut_off_in_a_narrow_window(tmp_path: Path, command: str) -> None:
    table = table_with(tmp_path)
    instant = write(table, 1)
    shown = CliRunner().invoke(app, [command, table.location], env={"COLUMNS": "50"}).output
    if command == "timeline":
        assert instant in shown.split()
    else:
        last = "".join(line[27:].strip() for line in shown.splitlines())
        assert table.base_files()[0].file_id in last
    assert "…" not in shown


def test_what_a_clean_would_delete_has_a_line_for_each_file(tmp_path: Path) -> None:
    table = table_with(tmp_path, clean__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1)
    for _ in range(2):
        write(table, 1)
    [planned] = call("clean", table.location, "--dry-run")["files"]
    shown = CliRunner().invoke(app, ["clean", table.location, "--dry-run"], env={"COLUMNS": "100"}).output
    name = planned["path"].rpartition("/")[2]
    assert [line.split() for line in shown.splitlines()][-1] == [str(planned["bytes"]), name]
    assert planned["why"] in shown
    assert ["held", "none"] in [line.split() for line in shown.splitlines()]


def test_the_timeline_has_a_line_for_each_instant_below_who_did_it(tmp_path: Path) -> None:
    table = table_with(tmp_path)
    instants = [write(table, number) for number in range(3)]
    shown = CliRunner().invoke(app, ["timeline", table.location], env={"COLUMNS": "80"}).output.splitlines()
    titles, who, *lines = shown
    assert titles.split() == ["requested", "completed", "action", "state", "priority"]
    assert who == call("timeline", table.location)[0]["who"]
    assert [line.split()[0] for line in lines] == instants
    assert {line.index("done") for line in lines} == {titles.index("state")}
