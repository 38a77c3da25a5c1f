"""The tables that the JVM's Hudi wrote, unpacked once for each session; and hand-made histories."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.table.histories import History

_ARCHIVES = Path(__file__).parents[2] / "fixtures" / "hudi_tables"


def told_of_jvm_tables(name: str) -> Any:
    """The content of a JSON file about the archives."""
    return json.loads((_ARCHIVES / name).read_text())


class JvmTables:
    """The unpacked tables, and the paths of their files.

    :param root: the folder into which they are unpacked.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def table(self, archive: str) -> Path:
        """The folder of the one table in an archive."""
        (found,) = [path for path in (self.root / archive).iterdir() if (path / ".hoodie").is_dir()]
        return found

    def properties_files(self) -> list[Path]:
        """``hoodie.properties`` of every table, including metadata tables."""
        return sorted(self.root.rglob("hoodie.properties"))

    def base_files(self) -> list[Path]:
        """Every data table's Parquet files, also those of older slices."""
        return sorted(path for path in self.root.rglob("*-0_*.parquet") if ".hoodie" not in path.parts)

    def avro_files(self) -> Iterator[tuple[Path, bytes]]:
        """Every Avro object container file, with its content."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                if content.startswith(b"Obj\x01"):
                    yield path, content


@pytest.fixture(scope="session")
def jvm_tables(tmp_path_factory: pytest.TempPathFactory) -> JvmTables:
    root = tmp_path_factory.mktemp("jvm_tables")
    for archive in sorted(_ARCHIVES.glob("*.zip")):
        with zipfile.ZipFile(archive) as content:
            names = [name for name in content.namelist() if not name.startswith("__MACOSX")]
            content.extractall(root / archive.stem, names)
    return JvmTables(root)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)
