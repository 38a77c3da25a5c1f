"""The power fails at any call; when it is back, every reported commit exists."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from airflow_provider.indexing.index_run import IndexRun
from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.unit.power.disk import Drawn, ForgetfulDisk, PowerCut
from tests.unit.power.lake import copied
from tests.unit.power.operations import KEYS, OPERATIONS, History
from tests.unit.power.processes import Process, rows_after, run
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

types = st.sampled_from(["copy_on_write", "merge_on_read"])
some_operations = st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=4)
rounds = st.lists(
    st.tuples(some_operations, st.integers(0, 500), st.integers(0, 2**32)), min_size=1, max_size=2
)


@pytest.mark.parametrize("level", ["commit", "full"])
@given(rounds=rounds, is_indexed=st.booleans(), table_type=types)
def test_nothing_that_was_reported_is_lost(level, rounds, is_indexed, table_type):
    lose_power(level, rounds, is_indexed, table_type)


def lose_power(level, rounds, is_indexed, table_type):
    history, disk = copied(level, is_indexed, table_type)
    for operations, cut_after, seed in rounds:
        random = Random(seed)
        try:
            with disk.running(cut_after):
                for operation in operations:
                    operation(history, random)
        except PowerCut:
            pass
        disk.cut()
        disk.come_back(Drawn(random))
        history.check_after_power_failure()
        disk = ForgetfulDisk(Path(disk.root))


@pytest.mark.parametrize("cut_after", range(12))
def test_at_each_call_of_a_savepoints_deletion(cut_after):
    rounds = [([History.savepoint], 500, 0), ([History.delete_savepoint], cut_after, 0)]
    lose_power("commit", rounds, False, "copy_on_write")


WRITES = (History.upsert, History.upsert, History.insert_overwrite, History.delete)
SERVICES = (
    History.cluster,
    History.clean,
    History.archive,
    History.index,
    History.compact,
    History.compact_table,
)
some_writes = st.lists(st.sampled_from(WRITES), min_size=1, max_size=4)
some_services = st.lists(st.sampled_from(SERVICES), min_size=1, max_size=3)


@given(
    operations=st.tuples(some_writes, some_writes, some_services, some_services),
    cut_after=st.integers(0, 1000),
    seed=st.integers(0, 2**32),
    is_indexed=st.booleans(),
    table_type=types,
)
def test_nor_of_several_processes_that_build_on_each_other(
    operations, cut_after, seed, is_indexed, table_type
):
    lose_power_together(operations, cut_after, seed, is_indexed, table_type)


def lose_power_together(operations, cut_after, seed, is_indexed, table_type):
    history, disk = copied("commit", is_indexed, table_type)
    random = Random(seed)
    keys = [[key for key in KEYS if key[0] == "a"], [key for key in KEYS if key[0] != "a"], [], []]
    processes = []
    for own, wanted in zip(keys, operations, strict=True):
        of_process = History(history.location, own)
        of_process.version = 100 * len(processes) + history.version
        of_process.rows = of_process.coming = {key: v for key, v in history.rows.items() if key in own}
        processes.append(Process(of_process, wanted, random))
    run(disk, processes, random, cut_after)
    disk.cut()
    disk.come_back(Drawn(random))
    history.version = 1000
    history.check_after_power_failure(lambda found: rows_after(processes, found))


@pytest.mark.parametrize("left", [0, 100])
def test_an_index_build_goes_on_after_its_staged_base_files_were_cut_off(tmp_path, left):
    schema = pa.schema({"id": pa.int64()})
    table = HudiTable.create(str(tmp_path / "t"), name="t", schema=schema, record_key=["id"])
    ingest_arrow(table, pa.table({"id": [1, 2]}, schema), "insert")
    instant = schedule_index(table, ["files", "record_index"])
    with patch.object(IndexRun, "_complete", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run_index(table, instant)
    staged = list((tmp_path / "t/.hoodie/commit_log/staged").glob("*.initial.avro"))
    assert len(staged) == 2
    for each in staged:
        os.truncate(each, left)
    assert run_index(table, instant).indexes == ("files", "record_index")
    assert_indexes_equal_a_rebuild(table)
