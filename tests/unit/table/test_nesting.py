"""A table cannot be created inside another table's folder, nor around another table."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider.exceptions import InvalidInputError, TableExistsError
from airflow_provider.table import HudiTable
from airflow_provider.table.properties import PROPERTIES_PATH
from airflow_provider.table.storage.storage import Storage

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["local", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "lake") if request.param == "local" else f"memory://{uuid.uuid4()}/lake"


def create(location: str) -> HudiTable:
    return HudiTable.create(location, name="t", schema=SCHEMA, record_key=["id"])


@pytest.mark.parametrize("inner", ["inner", "p=a/inner", ".hoodie/inner"])
def test_a_table_inside_another_ones_folder(lake: str, inner: str) -> None:
    create(f"{lake}/t")
    with pytest.raises(
        InvalidInputError, match=f"{lake}/t/{inner} is inside .* the table {lake}/t,"
    ) as raised:
        create(f"{lake}/t/{inner}")
    assert raised.value.details["outer"] == f"{lake}/t"
    assert Storage(f"{lake}/t/{inner}").stat(PROPERTIES_PATH) is None


@pytest.mark.parametrize("inner", ["inner", "a/b/inner"])
def test_a_table_around_another_one(lake: str, inner: str) -> None:
    create(f"{lake}/t/{inner}")
    Storage(f"{lake}/t").put("a/file", b"")
    with pytest.raises(InvalidInputError, match=f"{lake}/t holds the table {lake}/t/{inner} ") as raised:
        create(f"{lake}/t")
    assert raised.value.details["inner"] == f"{lake}/t/{inner}"
    assert Storage(f"{lake}/t").stat(PROPERTIES_PATH) is None


def test_tables_beside_one_another(lake: str) -> None:
    for name in ("t", "t2", "more/t", "more/t2"):
        create(f"{lake}/{name}")
        with pytest.raises(TableExistsError):
            create(f"{lake}/{name}")


def test_a_folder_that_holds_something_else(lake: str) -> None:
    Storage(f"{lake}/t").put("notes/readme.txt", b"")
    assert create(f"{lake}/t").location == f"{lake}/t"


def test_a_location_that_is_a_link_into_a_table(tmp_path: Path) -> None:
    create(str(tmp_path / "t"))
    (tmp_path / "t/inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t/inner")
    with pytest.raises(InvalidInputError, match=f"{tmp_path}/link is inside .* the table {tmp_path}/t,"):
        create(str(tmp_path / "link"))


def test_folders_around_a_folder() -> None:
    def around(root: str) -> list[str]:
        return [each.root for each in Storage(root).parents()]

    assert around("/a/b/c") == ["/a/b", "/a", "/"]
    assert around("/") == []
    assert around("memory://bucket/a/b") == ["memory://bucket/a", "memory://bucket"]
    assert around("memory://bucket") == []
