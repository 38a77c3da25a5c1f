"""Operations on a table with indexes; one storage operation after the other fails or loses its answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider.indexing.run import run_index
from airflow_provider.indexing.schedule import schedule_index
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable
from tests.processes.table.faults import with_faults
from tests.unit.indexing.jvm import JvmWrite, SharedLock, rows
from tests.unit.table.metadata_table.rebuilt import assert_indexes_equal_a_rebuild

INDEXES = ["files", "record_index"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_another_writer_committed_is_logged_after_a_first_try_that_failed(
    moment: str, table: HudiTable, tmp_path: Path
) -> None:
    lock = SharedLock(table.location)
    run_index(table, schedule_index(table, INDEXES, lock=lock), lock=lock)
    theirs = JvmWrite(table).begin()
    theirs.upsert([7, 8])
    failed = 0
    while True:
        again = shutil.copytree(table.location, str(tmp_path / f"{moment}-{failed}"))
        if not _fails_at(failed, moment, again, theirs.instant):
            break
        failed += 1
        again_table = HudiTable.open(again)
        ingest_arrow(again_table, rows([2]), lock=lock)
        assert_indexes_equal_a_rebuild(again_table, INDEXES)
        assert not list(again_table.storage.names(".hoodie/commit_log/staged"))
    assert failed > 5


def _fails_at(number: int, moment: str, location: str, instant: str) -> bool:
    """Ingest on a storage that fails at one of the operations on an instant's files in the metadata table."""
    left = number

    def fail(operation: str, path: str) -> None:
        nonlocal left
        if instant in path and ("/metadata/" in path or ".metadata_table." in path):
            left -= 1
            if left == -1:
                raise OSError(f"{moment} {operation} {path}")

    table = with_faults(
        location, fail if moment == "before" else _nothing, fail if moment == "after" else None
    )
    try:
        ingest_arrow(table, rows([1]), lock=SharedLock(location))
    except OSError:
        return True
    return False


def _nothing(operation: str, path: str) -> None: ...
