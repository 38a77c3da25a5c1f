"""The storage contract on a dictionary, and on a folder of one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa

from airflow_provider.table.storage.storage import FileStatus, Storage

T = TypeVar("T")


class MemoryStorage(Storage):
    """The storage contract on a dictionary."""

    moves_atomically = True

    def __init__(
        self,
        files: dict[str, tuple[bytes, float]],
        clock: Callable[[], float],
        *,
        moves_atomically: bool = True,
    ) -> None:
        self.root = "/simulated"
        self.options = {}
        self.moves_atomically = moves_atomically
        self._files = files
        self._clock = clock

    def at(self, operation: str, path: str) -> None:
        """Yield point before an operation."""

    def within(self, folder: str) -> Storage:
        return FolderStorage(self, folder)

    takes_appends = False  # markers are single files, as on an object store

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.at("put_if_absent", path)
        if path in self._files:
            return False
        self._files[path] = (data, self._clock())
        self.created(path, data)
        return True

    def created(self, path: str, data: bytes) -> None:
        """Called for each file that was put if absent."""

    def move_if_absent(self, source: str, target: str) -> bool:
        moved = self.link_if_absent(source, target)
        self.delete(source)
        return moved

    def link_if_absent(self, source: str, target: str) -> bool:
        if not self.moves_atomically:
            return self.put_if_absent(target, self.read(source))
        self.at("link_if_absent", target)
        if source not in self._files:
            raise FileNotFoundError(source)
        found = self._files[source]
        return self._files.setdefault(target, found) is found

    def put(self, path: str, data: bytes) -> None:
        self.at("put", path)
        is_new = path not in self._files
        self._files[path] = (data, self._clock())
        if is_new:
            self.created(path, data)

    def read(self, path: str) -> bytes:
        self.at("read", path)
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path][0]

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self.read(path)[start:end]

    def list(self, path: str, *, recursive: bool = False) -> builtins.list[FileStatus]:
        self.at("list", path)
        prefix = f"{path}/" if path else ""
        return [
            FileStatus(name, len(data), modified, False)
            for name, (data, modified) in self._files.items()
            if name.startswith(prefix) and (recursive or "/" not in name.removeprefix(prefix))
        ]

    def names(self, path: str) -> builtins.list[str]:
        self.at("list", path)
        prefix = f"{path}/" if path else ""
        within = [name[len(prefix) :] for name in self._files if name.startswith(prefix)]
        return list(dict.fromkeys(name.partition("/")[0] for name in within))

    def folders_holding(self, *names: str) -> builtins.list[str]:
        found = [status.path for status in self.list("", recursive=True) if status.name in names]
        return [path.rpartition("/")[0] for path in found if not path.startswith(".hoodie/")]

    def stat(self, path: str) -> FileStatus | None:
        self.at("stat", path)
        if path not in self._files:
            return None
        data, modified = self._files[path]
        return FileStatus(path, len(data), modified, False)

    def delete(self, path: str) -> bool:
        self.at("delete", path)
        return self._files.pop(path, None) is not None

    def delete_folder(self, path: str) -> None:
        for status in self.list(path, recursive=True):
            self.delete(status.path)

    def clock(self, *, anew: bool = False) -> float:
        return self._clock()

    def arrow(self) -> tuple[Any, str]:
        def open_input_file(path: str) -> pa.NativeFile:
            return pa.BufferReader(self.read(path.removeprefix("memory/")))

        return SimpleNamespace(open_input_file=open_input_file), "memory"


class FolderStorage(MemoryStorage):
    """A folder of a storage; each operation is an operation of that storage."""

    def __init__(self, outer: MemoryStorage, folder: str) -> None:
        self.root = outer.url(folder)
        self.options = {}
        self.moves_atomically = outer.moves_atomically
        self._outer = outer
        self._folder = folder

    def __getattribute__(self, name: str) -> Any:
        if name not in _OPERATIONS:
            return super().__getattribute__(name)
        outer, folder = self._outer, self._folder

        def operate(path: str, *others: Any) -> Any:
            moved = [f"{folder}/{each}" if name in _OF_TWO_FILES else each for each in others]
            found = getattr(outer, name)(f"{folder}/{path}" if path else folder, *moved)
            relative = len(folder) + 1
            if name == "list":
                return [status._replace(path=status.path[relative:]) for status in found]
            return found._replace(path=found.path[relative:]) if isinstance(found, FileStatus) else found

        return operate


_OF_TWO_FILES = ("move_if_absent", "link_if_absent")
_OPERATIONS = (
    *("put_if_absent", "put", "read", "read_range", "list", "names", "stat", "delete"),
    *_OF_TWO_FILES,
)
