"""A reader whose snapshot is older than a commit that a compaction has merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from tests.unit.concurrency.transactions.transactional_lake import Lake
from tests.unit.replication.pair import KINDS


@pytest.mark.parametrize("kind", ["merge-on-read", "non-blocking"])
def test_it_sees_the_slice_from_before_the_compaction(tmp_path: Path, kind: str) -> None:
    """If a bucket had only log files, no base file shows that the compaction depends on them."""
    lake = Lake(tmp_path, **KINDS[kind])
    lake.write("trips", {1: 10})
    first = lake.metastore.valid_txn_list()
    lake.write("trips", {1: 11})
    second = lake.metastore.valid_txn_list()
    assert compact_table(lake.tables["trips"], TableCompactionSettings(delta_commits=1))
    assert lake.seen("trips", valid_txns=first) == {1: 10}
    assert lake.seen("trips", valid_txns=second) == {1: 11}
    lake.write("trips", {1: 12, 3: 3})
    assert lake.seen("trips", valid_txns=first) == {1: 10}
    assert lake.seen("trips", valid_txns=second) == {1: 11}
    assert lake.seen("trips") == {1: 12, 3: 3}
