"""Tables on a disk that loses unforced writes."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path

from tests.unit.power.disk import ForgetfulDisk
from tests.unit.power.operations import History, create

_LAKE = tempfile.TemporaryDirectory(prefix="power-")
_made: dict[tuple[str, bool, str], History] = {}


def copied(level: str, is_indexed: bool, table_type: str = "copy_on_write") -> tuple[History, ForgetfulDisk]:
    """A table with some past, all of which is on the disk.

    :param level: its durability level.
    :param is_indexed: whether it has indexes.
    :param table_type: its type.
    """
    if (level, is_indexed, table_type) not in _made:
        location = f"{_LAKE.name}/{level}-{is_indexed}-{table_type}/t"
        _made[level, is_indexed, table_type] = create(
            location, level, is_indexed=is_indexed, table_type=table_type
        )
    made = _made[level, is_indexed, table_type]
    root = Path(tempfile.mkdtemp(dir=_LAKE.name))
    shutil.copytree(made.location, root / "t")
    history = History(str(root / "t"))
    for name in ("rows", "coming", "after", "version"):
        setattr(history, name, copy.copy(getattr(made, name)))
    return history, ForgetfulDisk(root)
