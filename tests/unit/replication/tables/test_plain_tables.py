"""Views, and tables that are no Hudi tables: external ones, and those that Hive's clients write."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.metastore import Column, PartitionSpec
from tests.unit.replication.pair import Pair

SCHEMA = [Column("id", "bigint")]


class PlainPair(Pair):
    """A source and its target, with a table ``lake.plain`` of plain files."""

    def __init__(self, root: Path, table_type: str) -> None:
        super().__init__(root)
        self.folder = root / "source" / "plain"
        self.put("day=1/a", "1")
        self.source.create_table(
            "lake",
            "plain",
            location=str(self.folder),
            schema=SCHEMA,
            partition_keys=[Column("day", "string")],
            table_type=table_type,
        )
        self.add("1")

    def put(self, path: str, content: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def add(self, day: str) -> None:
        self.source.add_partitions("lake", "plain", [PartitionSpec((day,), f"{self.folder}/day={day}")])

    def insert(self, *paths: str, day: str = "1") -> None:
        self.source.fire_insert_event(
            "lake", "plain", [f"{self.folder}/{path}" for path in paths], values=(day,)
        )

    def files(self) -> dict[str, str]:
        root = self.root / "target" / "plain"
        return {str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()}


@pytest.fixture(params=["EXTERNAL_TABLE", "MANAGED_TABLE"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> PlainPair:
    return PlainPair(tmp_path, request.param)


@pytest.mark.parametrize("is_following", [False, True])
def test_its_files_arrive_with_its_events(pair: PlainPair, is_following: bool) -> None:
    if is_following:
        pair.replicate()
    pair.put("day=2/b", "2")
    pair.add("2")
    pair.replicate()
    assert pair.files() == {"day=1/a": "1", "day=2/b": "2"}
    assert [one.values for one in pair.target.get_partitions("lake_copy", "plain")] == [("1",), ("2",)]
    pair.put("day=1/c", "3")
    pair.put("day=1/a", "9")
    (pair.folder / "day=2" / "b").unlink()
    pair.insert("day=1/c", "day=1/a")
    pair.insert(day="2")
    done = pair.replicate()
    assert pair.files() == {"day=1/a": "9", "day=1/c": "3"}
    assert done.bytes_copied == 2
    assert pair.replicate(bootstrap=True).bytes_copied == 0


def test_a_partition_elsewhere_is_brought_from_there(pair: PlainPair) -> None:
    elsewhere = pair.root / "source" / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "z").write_text("26")
    pair.source.add_partitions("lake", "plain", [PartitionSpec(("z",), str(elsewhere))])
    pair.replicate()
    assert (pair.root / "target" / "elsewhere" / "z").read_text() == "26"
    (elsewhere / "y").write_text("25")
    pair.source.fire_insert_event("lake", "plain", [f"{elsewhere}/y"], values=("z",))
    pair.replicate()
    assert (pair.root / "target" / "elsewhere" / "y").read_text() == "25"


def test_files_of_a_transaction_come_with_its_commit_and_of_an_aborted_one_never(tmp_path: Path) -> None:
    pair = PlainPair(tmp_path, "MANAGED_TABLE")
    pair.replicate()
    ends = {}
    for end in ("commit", "abort"):
        txn = ends[end] = pair.lake.begin()
        write_id = pair.source.allocate_table_write_id(txn, "lake", "plain")
        path = f"day=1/delta_{write_id:07d}_{write_id:07d}_0000/{end}"
        pair.put(path, end)
        pair.source.fire_insert_event("lake", "plain", [path], values=("1",), txn_id=txn)
    pair.replicate()
    assert pair.files() == {"day=1/a": "1"}
    pair.source.abort_txn(ends["abort"])
    pair.source.commit_txn(ends["commit"])
    pair.replicate()
    assert sorted(pair.files().values()) == ["1", "commit"]


def test_a_folder_that_is_gone_takes_nothing_with_it(pair: PlainPair) -> None:
    pair.replicate()
    pair.folder.rename(pair.root / "away")
    pair.source.alter_table("lake", "plain", parameters={"a": "b"})
    pair.replicate()
    assert pair.files() == {"day=1/a": "1"}


def test_a_view_has_no_files(pair: PlainPair) -> None:
    text = {"10": {"str": "SELECT 1"}, "11": {"str": "SELECT 1"}}
    options = {"location": "", "schema": SCHEMA, "table_type": "VIRTUAL_VIEW", "hive_fields": text}
    pair.source.create_table("lake", "first_view", **options)
    pair.replicate()
    pair.source.create_table("lake", "second_view", **options)
    pair.replicate()
    for name in ("first_view", "second_view"):
        view = pair.target.get_table("lake_copy", name)
        assert (view.table_type, view.location, view.hive_fields) == ("VIRTUAL_VIEW", "", text)
