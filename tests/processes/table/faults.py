"""A table's storage that injects a fault, a delay or a signal before or after any operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from airflow_provider.table import HudiTable
from airflow_provider.table.storage.storage import FileStatus, Storage

Act = Callable[[str, str], None]


class FaultyStorage(Storage):
    """The real storage; around each operation it calls ``before`` and ``after`` with operation and path.

    :param root: the table's location.
    :param before: called before an operation; may raise, wait, or end the process.
    :param after: called after an operation; if it raises, the operation's answer is lost.
    """

    def __init__(self, root: str, before: Act, after: Act | None = None) -> None:
        super().__init__(root)
        self._before, self._after = before, after

    @contextmanager
    def _at(self, operation: str, path: str) -> Iterator[None]:
        self._before(operation, path)
        yield
        if self._after is not None:
            self._after(operation, path)

    def within(self, folder: str) -> Storage:
        def told(act: Act) -> Act:
            return lambda operation, path: act(operation, f"{folder}/{path}".rstrip("/"))

        return FaultyStorage(self.url(folder), told(self._before), self._after and told(self._after))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._at("put_if_absent", path):
            return super().put_if_absent(path, data)

    def move_if_absent(self, source: str, target: str) -> bool:
        with self._at("move_if_absent", target):
            return super().move_if_absent(source, target)

    def link_if_absent(self, source: str, target: str) -> bool:
        with self._at("link_if_absent", target):
            return super().link_if_absent(source, target)

    def put(self, path: str, data: bytes) -> None:
        with self._at("put", path):
            super().put(path, data)

    def read(self, path: str) -> bytes:
        with self._at("read", path):
            return super().read(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with self._at("read_range", path):
            return super().read_range(path, start, end)

    def list(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        with self._at("list", path):
            return super().list(path, recursive=recursive)

    def names(self, path: str) -> Iterable[str]:
        with self._at("names", path):
            return super().names(path)

    def folders_holding(self, *names: str) -> Iterable[str]:
        with self._at("folders_holding", *names[:1]):
            return super().folders_holding(*names)

    def stat(self, path: str) -> FileStatus | None:
        with self._at("stat", path):
            return super().stat(path)

    def delete(self, path: str) -> bool:
        with self._at("delete", path):
            return super().delete(path)

    def create(self, path: str) -> BinaryIO:
        with self._at("create", path):
            return super().create(path)

    def open(self, path: str) -> BinaryIO:
        with self._at("open", path):
            return super().open(path)

    def arrow(self) -> Any:
        with self._at("arrow", ""):
            return super().arrow()


def with_faults(location: str, before: Act, after: Act | None = None) -> HudiTable:
    """A table on such a storage."""
    return HudiTable(FaultyStorage(location, before, after), HudiTable.open(location).config)
