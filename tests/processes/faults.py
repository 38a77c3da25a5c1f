"""A table's storage with something in front of every operation: a fault, a delay, a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from airflow_provider.table import HudiTable
from airflow_provider.table.storage import FileStatus, Storage

Before = Callable[[str, str], None]


class FaultyStorage(Storage):
    """The real storage; before each operation it calls ``before(operation, path)``.

    :param root: the table's location.
    :param before: may raise, wait, or end the process.
    """

    def __init__(self, root: str, before: Before) -> None:
        super().__init__(root)
        self._before = before

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._before("put_if_absent", path)
        return super().put_if_absent(path, data)

    def move_if_absent(self, source: str, target: str) -> bool:
        self._before("move_if_absent", target)
        return super().move_if_absent(source, target)

    def put(self, path: str, data: bytes) -> None:
        self._before("put", path)
        super().put(path, data)

    def read(self, path: str) -> bytes:
        self._before("read", path)
        return super().read(path)

    def list(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        self._before("list", path)
        return super().list(path, recursive=recursive)

    def names(self, path: str) -> Iterable[str]:
        self._before("names", path)
        return super().names(path)

    def stat(self, path: str) -> FileStatus | None:
        self._before("stat", path)
        return super().stat(path)

    def delete(self, path: str) -> bool:
        self._before("delete", path)
        return super().delete(path)

    def create(self, path: str) -> BinaryIO:
        self._before("create", path)
        return super().create(path)

    def open(self, path: str) -> BinaryIO:
        self._before("open", path)
        return super().open(path)

    def arrow(self) -> Any:
        self._before("arrow", "")
        return super().arrow()


def with_faults(location: str, before: Before) -> HudiTable:
    """A table seen through such a storage."""
    return HudiTable(FaultyStorage(location, before), HudiTable.open(location).config)
