"""Reading parts of a file, or of a part of a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.storage.storage import Storage


class ByteRange:
    """A range of bytes whose parts are read on demand.

    :param read: returns the bytes from one position up to, not including, another one.
    :param size: size of the range in bytes.
    :param name: its name in errors.
    :param at_least: bytes to fetch at least at a time; bytes beyond the wanted ones are kept for the next
        read.
    :param worth_skipping: see :attr:`Storage.worth_skipping`.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        name: str,
        at_least: int = 0,
        worth_skipping: int = 0,
    ) -> None:
        self._read = read
        self.size = size
        self.name = name
        self.worth_skipping = worth_skipping
        self._at_least = at_least
        self._kept = (0, b"")

    @classmethod
    def of_file(cls, storage: Storage, path: str, *, size: int | None = None, at_least: int = 0) -> ByteRange:
        """All bytes of a file.

        :param size: size of the file in bytes, if a listing or an index has it; otherwise the storage is
            asked.
        :raises FileNotFoundError: when there is no such file.
        """
        if size is None:
            status = storage.stat(path)
            if status is None:
                raise FileNotFoundError(storage.url(path))
            size = status.size
        read = partial(storage.read_range, path)
        return cls(read, size, storage.url(path), at_least, storage.worth_skipping)

    @classmethod
    def of_bytes(cls, data: bytes, name: str) -> ByteRange:
        """Bytes that are in memory already."""
        return cls(lambda start, end: data[start:end], len(data), name)

    def part(self, start: int, size: int) -> ByteRange:
        """A range within this one, which reads through this one."""

        def read(begin: int, end: int) -> bytes:
            return self.read(start + begin, start + end)

        return ByteRange(read, size, self.name, worth_skipping=self.worth_skipping)

    def read(self, start: int, end: int) -> bytes:
        """The bytes from one position up to, not including, another one.

        :raises CorruptTableError: when the range ends before that position.
        """
        if not 0 <= start <= end <= self.size:
            raise CorruptTableError(
                f"{self.name} is cut off or damaged: it refers to its bytes {start} to {end} of {self.size}"
            )
        kept_from, kept = self._kept
        if not kept_from <= start <= end <= kept_from + len(kept):
            until = min(self.size, max(end, start + self._at_least))
            kept_from, kept = start, self._read(start, until)
            if len(kept) < end - start:
                raise CorruptTableError(f"{self.name} ends at byte {start + len(kept)} of {self.size}")
            self._kept = (kept_from, kept) if self._at_least else self._kept
        return kept[start - kept_from : end - kept_from]

    def keep(self, start: int, end: int) -> None:
        """Fetch bytes in one request, unless they are here, because parts of them will be read next."""
        kept_from, kept = self._kept
        if not kept_from <= start <= end <= kept_from + len(kept):
            self._kept = (start, self.read(start, end))
