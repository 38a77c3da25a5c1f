"""Where a test run has its temporary files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests import in_memory

MARK = "0123456789abcdef"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the file system in memory; the test's settings end with it."""
    monkeypatch.setattr(in_memory, "FOLDER", str(tmp_path))
    monkeypatch.setattr(in_memory, "ROOM", 1)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setenv("TMPDIR", "to be restored")
    return tmp_path


def test_they_are_in_a_folder_of_the_run_until_its_end(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR")
    in_memory.put_in_memory(MARK)
    folder = in_memory.folder_of(MARK)
    assert (folder.parent, os.environ["TMPDIR"], tempfile.gettempdir()) == (memory, str(folder), str(folder))
    (folder / "left").write_text("by a test")
    in_memory.remove(MARK)
    assert not folder.exists()


def test_they_stay_where_the_developer_wants_them(memory: Path) -> None:
    in_memory.put_in_memory(MARK)
    assert (os.environ["TMPDIR"], [*memory.iterdir()]) == ("to be restored", [])


@pytest.mark.parametrize("missing", ["room", "file system"])
def test_they_are_on_the_disk_without(missing: str, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR")
    if missing == "room":
        monkeypatch.setattr(in_memory, "ROOM", 1024**6)
    else:
        monkeypatch.setattr(in_memory, "FOLDER", str(memory / "missing"))
    in_memory.put_in_memory(MARK)
    assert "TMPDIR" not in os.environ
    assert [*memory.iterdir()] == []
