"""The temporary files of a test run are in memory, where the machine has room for them.

A run makes and deletes hundreds of thousands of small files, and commits of tables and databases wait for the
disk. On an ext4 without a journal, which small virtual machines have, a new file costs more, the more files
were deleted within the last half minute. A run that has ``TMPDIR`` in its environment keeps its files there,
and leaves those of failed tests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

FOLDER = "/dev/shm"
ROOM = 6 * 1024**3
"""Bytes that must be free in the file system; as many again must be free in memory for the processes."""


def put_in_memory(mark: str) -> None:
    """Let this process and its children make their temporary files in memory.

    :param mark: the mark of the run, which names its folder.
    """
    if "TMPDIR" in os.environ or not has_room():
        return
    folder = folder_of(mark)
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # Python has remembered another folder, if a library asked for it


def has_room() -> bool:
    """Whether the machine has a file system in memory, with room for a run."""
    if not Path(FOLDER).is_dir() or shutil.disk_usage(FOLDER).free < ROOM:
        return False
    return psutil.virtual_memory().available >= 2 * ROOM


def remove(mark: str) -> None:
    """Remove the temporary files of a run that has ended."""
    shutil.rmtree(folder_of(mark), ignore_errors=True)


def folder_of(mark: str) -> Path:
    """The folder of a run. Its path is short, because the path of a socket has at most 107 bytes."""
    return Path(FOLDER, f"test-run-{mark[:8]}")
