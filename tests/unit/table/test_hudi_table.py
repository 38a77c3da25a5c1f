"""Creating, opening, writing and reading a table, also by an independent reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.concurrency import Writer, begin_write
from airflow_provider.exceptions import (
    InvalidInputError,
    MissingColumnError,
    NoSuchInstantError,
    NotATableError,
    TableExistsError,
    UnsupportedTableError,
)
from airflow_provider.table import HudiTable, snapshot
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.file_names import new_file_id
from airflow_provider.table.files.base_file_writer import BaseFileWriter
from airflow_provider.table.files.markers import MarkerType, write_marker
from airflow_provider.table.files.partition_metadata import write_partition_metadata
from airflow_provider.table.keys import record_keys
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.timeline.instant import Action
from airflow_provider.table.timeline.metadata import WriteStat
from tests.unit.table.histories import History

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "trips"), name="trips", schema=SCHEMA, record_key=["id"], partition_by=["city"]
    )


def write(
    table: HudiTable,
    rows: list[tuple[int, float]],
    city: str,
    *,
    replace: bool = False,
    file_id: str | None = None,
) -> str:
    """Write one file in one partition, through the commit protocol; return the instant."""
    action = Action.REPLACE_COMMIT if replace else Action.COMMIT
    partition = f"city={city}"
    with begin_write(table, operation="INSERT_OVERWRITE" if replace else "INSERT", action=action) as writer:
        replaced = {partition: [f.file_id for f in writer.view.base_files(partition)]} if replace else {}
        file_id = file_id or new_file_id()
        writer.plan([FileGroupId(partition, file_id)])
        write_partition_metadata(table.storage, partition, writer.instant)
        data = pa.table(
            {"id": [i for i, _ in rows], "city": [city] * len(rows), "fare": [f for _, f in rows]}, SCHEMA
        )
        sink = BaseFileWriter(
            table.storage,
            partition_path=partition,
            file_id=file_id,
            write_token="0-0-0",
            instant=writer.instant,
            schema=SCHEMA,
        )
        sink.write(data, record_keys(data, ["id"]))
        written = sink.close()
        stat = WriteStat(
            file_id,
            partition,
            written.path,
            num_writes=written.rows,
            num_inserts=written.rows,
            file_size=written.size,
        )
        return writer.commit([stat], replaced=replaced).instant


def ours(table: HudiTable, as_of: str | None = None) -> list[dict[str, object]]:
    return sorted(snapshot(table, as_of).to_table().to_pylist(), key=lambda row: row["id"])


def theirs(table: HudiTable) -> list[dict[str, object]]:
    batches = HudiTableBuilder.from_base_uri(table.location).build().read()
    rows = pa.Table.from_batches(batches).select(SCHEMA.names).to_pylist() if batches else []
    return sorted(rows, key=lambda row: row["id"])


def test_an_empty_table_reads_as_empty(table: HudiTable) -> None:
    assert ours(table) == []
    assert HudiTable.open(table.location).schema == SCHEMA
    assert theirs(table) == []


def test_commits_are_read_back_by_both_readers(table: HudiTable) -> None:
    first = write(table, [(1, 1.5), (2, 2.5)], "sf")
    second = write(table, [(3, 3.5)], "ny")
    assert [row["id"] for row in ours(table)] == [1, 2, 3]
    assert ours(table) == theirs(table)
    assert [row["id"] for row in ours(table, as_of=first)] == [1, 2]
    assert [row["id"] for row in ours(table, as_of=second)] == [1, 2, 3]


def test_replaced_file_groups_disappear(table: HudiTable) -> None:
    before = write(table, [(1, 1.5)], "sf")
    write(table, [(2, 2.5)], "sf", replace=True)
    assert [row["id"] for row in ours(table)] == [2]
    assert ours(table) == theirs(table)
    assert [row["id"] for row in ours(table, as_of=before)] == [1]


def test_a_write_that_was_given_up_leaves_no_file(table: HudiTable) -> None:
    write(table, [(1, 1.5)], "sf")

    class UnexpectedError(Exception):
        pass

    def fail(writer: Writer) -> None:
        writer.plan([FileGroupId("city=sf", "x-0")])
        table.storage.put(f"city=sf/x-0_0-0-0_{writer.instant}.parquet", b"part of a file")
        raise UnexpectedError

    with pytest.raises(UnexpectedError), begin_write(table, operation="INSERT") as writer:
        fail(writer)
    assert not [
        s
        for s in table.storage.list("", recursive=True)
        if writer.instant in s.name and "rollback" not in s.name
    ]
    assert ours(table) == theirs(table)
    assert len(ours(table)) == 1
    assert [i.action for i in table.timeline().completed()] == [Action.COMMIT, Action.ROLLBACK]


def test_leftovers_of_failed_task_attempts_are_gone_after_the_commit(table: HudiTable) -> None:
    partition = "city=sf"
    with begin_write(table, operation="INSERT") as writer:
        writer.plan([FileGroupId(partition, "x-0")])
        left = f"{partition}/x-0_0-0-0_{writer.instant}.parquet"
        kept = f"{partition}/x-0_0-0-1_{writer.instant}.parquet"
        for path in (left, kept):
            write_marker(table.storage, writer.instant, path, MarkerType.CREATE)
            table.storage.put(path, b"an attempt")
        writer.commit([WriteStat("x-0", partition, kept)])
    assert table.storage.stat(left) is None
    assert table.storage.stat(kept) is not None


def test_as_of_before_the_first_commit_says_when_that_was(table: HudiTable) -> None:
    write(table, [(1, 1.5)], "sf")
    with pytest.raises(NoSuchInstantError, match="the first commit completed at"):
        snapshot(table, as_of="20200101000000000")
    with pytest.raises(InvalidInputError, match="yyyyMMddHHmmssSSS"):
        snapshot(table, as_of="yesterday")


def test_as_of_leaves_out_what_was_requested_first_and_completed_later(history: History) -> None:
    late = history.begin({("a", 1): "late"})
    early = history.commit({("a", 2): "early"})
    history.complete(late)
    rows = snapshot(history.table, as_of=early.completion_time).to_table()
    assert rows["v"].to_pylist() == ["early"]


def test_a_table_is_not_created_twice(table: HudiTable) -> None:
    before = table.storage.read(PROPERTIES_PATH)
    with pytest.raises(TableExistsError, match=table.location):
        HudiTable.create(table.location, name="other", schema=SCHEMA, record_key=["id"])
    assert table.storage.read(PROPERTIES_PATH) == before


def test_a_folder_without_a_table_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match=r"has no \.hoodie/hoodie\.properties"):
        HudiTable.open(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"record_key": ["nope"]}, MissingColumnError, "record key column 'nope'"),
        ({"record_key": ["id"], "partition_by": ["nope"]}, MissingColumnError, "partition column 'nope'"),
        ({"record_key": ["id"], "ordering_field": "nope"}, MissingColumnError, "ordering column 'nope'"),
        ({"record_key": []}, InvalidInputError, "names no column"),
        ({"record_key": ["id"], "schema": pa.schema([])}, InvalidInputError, "has no column"),
        (
            {"record_key": ["id"], "schema": SCHEMA.append(pa.field("_hoodie_commit_time", pa.string()))},
            InvalidInputError,
            "Hudi meta column",
        ),
    ],
)
def test_bad_definitions_are_refused_without_a_trace(
    arguments: dict[str, object], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        HudiTable.create(str(tmp_path / "t"), name="t", **{"schema": SCHEMA, **arguments})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_another_table_version_is_not_written(table: HudiTable) -> None:
    text = table.storage.read(PROPERTIES_PATH).decode()
    table.storage.put(
        PROPERTIES_PATH, text.replace("hoodie.table.version=9", "hoodie.table.version=8").encode()
    )
    with pytest.raises(UnsupportedTableError, match="version 8"):
        HudiTable.open(table.location).check_writable()


def test_a_storage_that_lets_nobody_in_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}, "skip_instance_cache": True}
    with pytest.raises(InvalidInputError, match=r"'s3://lake/t' cannot be accessed: NoCred.*storage_conn_id"):
        HudiTable.open("s3://lake/t", options)
