"""The files of the archived timeline, which the JVM also reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.services.archival import archive
from airflow_provider.table import HudiTable
from airflow_provider.table.timeline.archived_timeline import (
    HISTORY_FOLDER,
    VERSION_PATH,
    Manifest,
    archived,
    archived_instants,
)
from airflow_provider.table.timeline.metadata import decode_commit_metadata
from tests.unit.services.archival.trips import FEW, commits, create, fares, on_timeline
from tests.unit.table.conftest import JvmTables


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return create(tmp_path)


def test_the_history_is_shaped_as_the_jvms(table: HudiTable, jvm_tables: JvmTables) -> None:
    commits(table, 6)
    archive(table, **FEW)
    (ours,) = (Path(table.location) / HISTORY_FOLDER).glob("*.parquet")
    theirs = next((jvm_tables.table("jvm_mor_v9_mdt_legacy_hfile") / HISTORY_FOLDER).glob("2*.parquet"))

    def shape(path: Path) -> list[tuple[Any, ...]]:
        schema = pq.ParquetFile(path).schema
        columns = [schema.column(index) for index in range(len(schema.names))]
        return [(c.name, c.physical_type, str(c.logical_type), c.max_definition_level) for c in columns]

    assert shape(ours) == shape(theirs)
    mine, jvm = (pq.ParquetFile(path).metadata.metadata for path in (ours, theirs))
    assert json.loads(mine[b"parquet.avro.schema"]) == json.loads(jvm[b"parquet.avro.schema"])
    first, last, level = ours.stem.split("_")
    found = [each.requested_time for each in archived_instants(table.storage)]
    assert (first, last, level) == (found[0], found[-1], "0")
    assert table.storage.read(VERSION_PATH) == b"1"
    assert json.loads(table.storage.read(f"{HISTORY_FOLDER}/manifest_1")) == {
        "files": [{"fileName": ours.name, "fileLen": ours.stat().st_size}]
    }


def test_files_of_the_history_are_merged_level_by_level(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.table.timeline.archive_files.MERGED_FILES", 3)
    done = commits(table, 3)
    for number in range(3, 23):
        done += commits(table, 1, first=number)
        archive(table, keep_min=2, keep_max=3)
        found = [each.requested_time for each in archived_instants(table.storage)]
        assert sorted(found) == done[: len(found)]
        assert len(found) + len(on_timeline(table)) == len(done)
    files = Manifest.newest(table.storage).files
    assert len(files) <= 6
    assert max(each.level for each in files) == 2
    version = int(table.storage.read(VERSION_PATH))
    names = set(table.storage.names(HISTORY_FOLDER))
    assert {name for name in names if "manifest" in name} == {f"manifest_{version - n}" for n in range(3)}
    needed = {each.name for n in range(3) for each in Manifest.read(table.storage, version - n).files}
    assert {name for name in names if name.endswith(".parquet")} == needed
    assert all(decode_commit_metadata(each.metadata or b"").write_stats for each in archived(table.storage))
    assert len(fares(table)) == 23


@pytest.mark.parametrize("content", [b"no Parquet file", b"PAR1 cut off"])
def test_a_damaged_history_is_told(table: HudiTable, content: bytes) -> None:
    commits(table, 6)
    archive(table, **FEW)
    (path,) = (Path(table.location) / HISTORY_FOLDER).glob("*.parquet")
    path.write_bytes(content)
    with pytest.raises(CorruptTableError, match=path.name):
        list(archived_instants(table.storage))
