"""The file groups of a clustering plan, and the plan's files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.log.log_entry import Plan
from airflow_provider.exceptions import InvalidInputError, MissingColumnError
from airflow_provider.services.clustering.clustering import (
    cluster_in_process,
    pending_clusterings,
    pending_plan,
    preview_clustering,
    schedule_clustering,
)
from airflow_provider.services.clustering.clustering_plan import ClusteringPlan, ClusteringSettings
from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.metadata import decode, encode
from tests.ingestion_contract.lake import Lake, LakeTable, untouched

SCHEMA = pa.schema(
    {"id": pa.int64(), "part": pa.string(), "value": pa.float64(), "tags": pa.list_(pa.int64())}
)


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    """A table: partition ``a`` with four file groups, ``b`` with two, ``c`` with one."""
    made = Lake(tmp_path).create(SCHEMA, partition_by=["part"])
    for number, parts in enumerate(("abc", "ab", "a", "a")):
        rows = [
            {"id": 10 * number + n, "part": part, "value": float(n), "tags": []}
            for part in parts
            for n in range(5)
        ]
        made.ingest("bulk_insert", rows)
    return made


def planned(table: LakeTable, **settings: Any) -> dict[str, list[tuple[int, int]]]:
    """The number of file groups that each clustering group reads and writes, by partition."""
    plan = preview_clustering(table.table, ClusteringSettings(**settings))
    found: dict[str, list[tuple[int, int]]] = {}
    for group in plan.groups if plan else ():
        found.setdefault(group.partition_path, []).append((len(group.slices), group.outputs))
    return found


def sizes(table: LakeTable, partition: str) -> list[int]:
    return sorted(base_file.size for base_file in table.table.view().base_files(partition))


def test_small_files_are_packed_and_one_alone_is_not(table: LakeTable) -> None:
    assert planned(table) == {"part=a": [(4, 1)], "part=b": [(2, 1)]}


def test_one_alone_is_ordered_once(table: LakeTable) -> None:
    assert planned(table, sort_by=("value",)) == {"part=a": [(4, 1)], "part=b": [(2, 1)], "part=c": [(1, 1)]}
    schedule_clustering(table.table, ClusteringSettings(sort_by=("value",)))
    cluster_in_process(table.table)
    assert planned(table, sort_by=("value",)) == {}
    assert set(planned(table, sort_by=("value", "id"))) == {"part=a", "part=b", "part=c"}
    table.ingest("bulk_insert", [{"id": 99, "part": "b", "value": 1.0, "tags": []}])
    assert planned(table, sort_by=("value",)) == {"part=b": [(2, 1)]}


def test_file_groups_of_the_limit_s_size_are_left_alone(table: LakeTable) -> None:
    largest = sizes(table, "part=a")[-1]
    assert planned(table, partitions=("part=a",), small_file_limit=largest + 1) == {"part=a": [(4, 1)]}
    smaller = sum(size < largest for size in sizes(table, "part=a"))
    found = planned(table, partitions=("part=a",), small_file_limit=largest)
    assert found == ({"part=a": [(smaller, 1)]} if smaller > 1 else {})


def test_new_file_groups_get_about_the_target_size(table: LakeTable) -> None:
    total = sum(sizes(table, "part=a"))
    assert planned(table, partitions=("part=a",), target_file_size=total // 2 + 1) == {"part=a": [(4, 2)]}
    # Without an order, a rewrite into as many files as before would gain nothing.
    assert planned(table, target_file_size=1) == {}


def test_a_group_has_a_largest_size_and_a_plan_most_groups(table: LakeTable) -> None:
    two = sum(sizes(table, "part=a")[-2:])
    found = planned(table, max_group_size=two)
    assert found["part=a"] == [(2, 1), (2, 1)]
    assert planned(table, max_group_size=two, max_groups=1) == {"part=a": [(2, 1)]}
    # Groups that save the most files come first.
    assert planned(table, max_groups=1) == {"part=a": [(4, 1)]}


def test_partitions_by_pattern(table: LakeTable) -> None:
    assert set(planned(table, partitions=("part=[bc]",))) == {"part=b"}
    assert set(planned(table, partitions=("part=x", "*=a"))) == {"part=a"}


def test_young_file_groups_are_left_alone(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(table, min_age=3600.0) == {}
    later = time.time() + 3601
    monkeypatch.setattr(Storage, "clock", lambda _: later)
    assert set(planned(table, min_age=3600.0)) == {"part=a", "part=b"}


def test_what_another_plan_has_is_left_alone(table: LakeTable) -> None:
    first = schedule_clustering(table.table, ClusteringSettings(partitions=("part=a",)))
    assert planned(table) == {"part=b": [(2, 1)]}
    second = schedule_clustering(table.table, ClusteringSettings())
    assert second is not None
    assert {group.partition_path for group in pending_plan(table.table, second).groups} == {"part=b"}
    assert schedule_clustering(table.table, ClusteringSettings()) is None
    assert pending_clusterings(table.table) == [first, second]


def test_the_plan_on_the_timeline_is_hudi_s(table: LakeTable) -> None:
    settings = ClusteringSettings(("value", "id"), "hilbert", ("part=a",))
    expected = preview_clustering(table.table, settings)
    instant = schedule_clustering(table.table, settings)
    plan = pending_plan(table.table, str(instant))
    assert plan == expected
    content = Path(table.location, f".hoodie/timeline/{instant}.clustering.requested").read_bytes()
    requested = decode(content)
    assert requested["operationType"] == "CLUSTER"
    record = requested["clusteringPlan"]
    assert record["preserveHoodieMetadata"] is True
    assert record["strategy"]["strategyParams"]["hoodie.layout.optimize.strategy"] == "HILBERT"
    assert record["strategy"]["strategyParams"]["hoodie.clustering.plan.strategy.sort.columns"] == "value,id"
    (group,) = record["inputGroups"]
    assert group["numOutputFileGroups"] == 1
    for each in group["slices"]:
        assert Path(each["dataFilePath"]).is_file()
        assert Path(each["dataFilePath"]).name.startswith(each["fileId"] + "_")
        assert (each["partitionPath"], each["deltaFilePaths"]) == ("part=a", [])
    (entry,) = (entry for entry in CommitLog(table.table.storage).backwards() if isinstance(entry, Plan))
    assert entry.file_groups == plan.file_groups


def test_the_plan_of_another_hudi_writer_is_not_ours() -> None:
    content = encode("HoodieRequestedReplaceMetadata", {"operationType": "CLUSTER", "clusteringPlan": {}})
    with pytest.raises(InvalidInputError, match="another Hudi writer"):
        ClusteringPlan.from_avro(content)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"layout": "zorder"}, InvalidInputError, "'zorder' is not known; known: linear, z-order, hilbert"),
        ({"sort_by": ("vlaue",)}, MissingColumnError, "no column 'vlaue' to sort by; it has: id, part"),
        ({"sort_by": ("tags",)}, InvalidInputError, "column 'tags' .list.* have no order"),
        ({"sort_by": ("id", "id")}, InvalidInputError, "each once, not"),
        (
            {"small_file_limit": 0},
            InvalidInputError,
            "small_file_limit must be a whole number above 0, not 0",
        ),
        ({"target_file_size": 1.5}, InvalidInputError, "target_file_size must be a whole number above 0"),
        ({"max_groups": True}, InvalidInputError, "max_groups must be"),
        ({"max_group_size": -1}, InvalidInputError, "max_group_size must be"),
        ({"min_age": -0.1}, InvalidInputError, "min_age must be 0 seconds or more, not -0.1"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    table: LakeTable, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    def plan() -> None:
        with pytest.raises(error, match=message):
            schedule_clustering(table.table, ClusteringSettings(**settings))

    untouched(table.location, plan)


def test_a_table_without_partitions_and_an_empty_one(tmp_path: Path) -> None:
    made = Lake(tmp_path).create(SCHEMA)
    assert planned(made, sort_by=("value",)) == {}
    for number in range(2):
        made.ingest("bulk_insert", [{"id": number, "part": "a", "value": 0.0, "tags": []}])
    assert planned(made) == {"": [(2, 1)]}
    instant = schedule_clustering(made.table, ClusteringSettings())
    assert pending_plan(made.table, str(instant)).file_groups == {
        base_file.file_group for base_file in made.table.base_files()
    }
