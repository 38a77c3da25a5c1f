"""Hooks and sensors on tables that the JVM's Hudi wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.hooks import TableHook
from airflow_provider.sensors import PriorCommitsFenceSensor
from airflow_provider.table.reading.slices import file_slices
from tests.unit.table.conftest import JvmTables, jvm_tables

__all__ = ["jvm_tables"]


@pytest.mark.parametrize("name", ["rs_cow_v6_overwritetable", "rs_cow_v8_simple", "jvm_mor_v6_archived"])
def test_hooks_and_sensors_read_them(name: str, jvm_tables: JvmTables, tmp_path: Path):
    location = str(shutil.copytree(jvm_tables.table(name), tmp_path / "t"))
    hook = TableHook()
    table = hook.get_table(location)
    commits = hook.timeline(location).commits()
    assert commits
    assert file_slices(table)
    assert hook.pending_instants(location) == []

    last = commits[-1].requested_time
    fence = PriorCommitsFenceSensor(task_id="fence", table=location, before=last)
    assert fence.poke({})
    name = f"{last}.commit.requested" if table.config.layout == 1 else f"timeline/{last}.commit.requested"
    earlier = Path(location) / ".hoodie" / name.replace(last, str(int(commits[0].requested_time) - 1))
    earlier.touch()
    assert [each.instant for each in hook.pending_instants(location)] == [earlier.name.partition(".")[0]]
    assert not fence.poke({})
    if table.config.table_type == "COPY_ON_WRITE":
        found = hook.increment(location, commits[0].requested_time)
        assert found.scanner().count_rows() <= hook.increment(location).scanner().count_rows()
