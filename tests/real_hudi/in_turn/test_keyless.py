"""This package and the JVM's Hudi write a table without a record key in turn; all readers agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_provider.exceptions import NoWriteIdError
from airflow_provider.services.clustering import ClusteringSettings, schedule_clustering
from airflow_provider.services.clustering.clustering import cluster_in_process
from airflow_provider.table import HudiTable, snapshot
from tests.real_hudi.in_turn.shared_table import (
    ALL_INDEXES,
    ALL_INDEXES_OF_THE_JVM,
    SCHEMA,
    SharedTable,
    row,
    rows,
)
from tests.real_hudi.jvm import Session
from tests.real_hudi.services_and_columns.metadata_table import check_metadata_table

FIRST = rows(range(30), 0)


class KeylessTable(SharedTable):
    """A table without a record key. The JVM generates keys only when its option for them is left out."""

    of_its_keys: ClassVar[Mapping[str, str]] = {}


def of_ours(hudi: Session, location: Path) -> SharedTable:
    shared = KeylessTable(hudi, location)
    HudiTable.create(shared.location, name=shared.name, schema=SCHEMA, record_key=None, partition_by=["part"])
    shared.ours(FIRST, "insert", txn_id=1, write_id=1)
    shared.build(ALL_INDEXES)
    return shared


def of_the_jvm(hudi: Session, location: Path) -> SharedTable:
    shared = KeylessTable(hudi, location, ALL_INDEXES_OF_THE_JVM)
    shared.theirs(FIRST, "insert", mode="overwrite")
    assert shared.table.config.generates_keys
    return shared


def keys(shared: SharedTable) -> dict[str, str]:
    """The record key of each row, which no other row has."""
    found = snapshot(shared.table, meta_columns=True).to_table(["id", "_hoodie_record_key"]).to_pylist()
    assert len({each["_hoodie_record_key"] for each in found}) == len(found), "a key is there twice"
    return {each["id"]: each["_hoodie_record_key"] for each in found}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("made", [of_ours, of_the_jvm])
def test_inserts_updates_and_services_in_turn(
    made: Callable[[Session, Path], SharedTable], hudi: Session, location: Path
) -> None:
    shared = made(hudi, location)
    shared.always(ALL_INDEXES_OF_THE_JVM)
    shared.check()
    known = keys(shared)
    if made is of_ours:
        ids = snapshot(shared.table, row_ids=True).to_table(["id", "row_id"]).sort_by("id")
    shared.sql("update {t} set v = v + 1000 where v < 10")
    shared.model |= {each["id"]: {**each, "v": each["v"] + 1000} for each in FIRST if each["v"] < 10}
    shared.check()
    assert keys(shared) == known, "an update by SQL keeps the keys"
    if made is of_ours:
        updated = snapshot(shared.table, row_ids=True)
        assert updated.to_table(["id", "row_id"]).sort_by("id") == ids
        with pytest.raises(NoWriteIdError, match=shared.table.timeline().commits()[-1].requested_time):
            updated.to_table(["current_write_id"])

    shared.theirs(rows(range(100, 110), 0), "insert")
    shared.check()
    shared.ours(rows(range(110, 120), 0), "insert")
    shared.check()
    shared.theirs(rows(range(120, 130), 0), "bulk_insert")
    shared.ours(rows(range(130, 140), 0), "bulk_insert")
    shared.check()
    assert known.items() <= keys(shared).items()

    # Without Hudi's columns no key identifies the row: the JVM adds another row.
    shared.theirs([row(20, 1)], "upsert")
    assert len(snapshot(shared.table, where=[("id", "=", "k0020")]).to_table()) == 2
    shared.sql("delete from {t} where id in ('k0003', 'k0104', 'k0020')")
    shared.drop(["k0003", "k0104", "k0020"])
    shared.check()

    known = keys(shared)
    instant = schedule_clustering(shared.table, ClusteringSettings())
    assert instant is not None
    cluster_in_process(shared.table, instant)
    shared.check()
    assert keys(shared) == known
    shared.theirs(rows(range(140, 150), 0), "insert")
    shared.ours(rows(range(2, 300, 30), 5), "insert_overwrite")
    shared.check()
    keys(shared)
    check_metadata_table(hudi, shared.table)
