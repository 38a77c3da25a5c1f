"""Copies files of one table to another storage: several at once, resumable, compared, at a bounded rate."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from airflow_provider.exceptions import InvalidInputError, ReplicationError
from airflow_provider.table.storage import Storage, copy_file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CopySettings:
    """The settings of copies.

    :param threads: the number of files that are copied at once.
    :param checksum: whether the copier compares contents after the copy, besides the sizes.
    :param bytes_per_second: the limit for all threads of one replicator together; None for no limit.
    :param progress_seconds: seconds between two lines in the log about the progress of a copy.
    :raises InvalidInputError: when a number is not above zero.
    """

    threads: int = 8
    checksum: bool = True
    bytes_per_second: float | None = None
    progress_seconds: float = 10.0

    def __post_init__(self) -> None:
        rate = self.bytes_per_second
        if self.threads < 1 or self.progress_seconds <= 0 or (rate is not None and rate <= 0):
            raise InvalidInputError(
                f"threads, bytes a second and progress seconds must be above zero, not {self.threads!r}, "
                f"{rate!r}, {self.progress_seconds!r}"
            )


@dataclass
class Copier:
    """Copies files, and counts them and their bytes.

    :param settings: the settings of the copies.
    :param step: called with a name before each file; an error that it raises stops the copier.
    :ivar bytes_copied: the number of bytes that this object has copied.
    :ivar files_copied: the number of files that this object has copied.
    """

    settings: CopySettings = field(default_factory=CopySettings)
    step: Callable[[str], None] = lambda _: None
    bytes_copied: int = 0
    files_copied: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0

    def copy(
        self,
        source: Storage,
        target: Storage,
        files: Iterable[tuple[str, int | None]],
        *,
        anew: bool = False,
    ) -> int:
        """Copy the files that the target lacks. A file of the same name and size counts as copied.

        :param source: the table's storage at the source.
        :param target: the table's storage at the target.
        :param files: paths relative to both, each with the size in the source's timeline, or None if the
            timeline has no size.
        :param anew: whether to copy also the files that the target has.
        :return: the number of copied bytes.
        :raises ReplicationError: when a file of the source is missing, or has another size; the error names
            it.
        """
        wanted = dict(files)
        missing = [path for path, size in wanted.items() if anew or not _is_there(target, path, size)]
        if not missing:
            return 0
        before, began, logged = self.bytes_copied, time.monotonic(), time.monotonic()
        pool = ThreadPoolExecutor(min(self.settings.threads, len(missing)), "replication-copy")
        try:
            pending = {pool.submit(self._copy_one, source, target, path, wanted[path]) for path in missing}
            while pending:
                done, pending = wait(pending, self.settings.progress_seconds, FIRST_EXCEPTION)
                for each in done:
                    each.result()
                if time.monotonic() - logged >= self.settings.progress_seconds:
                    logged, copied = time.monotonic(), self.bytes_copied - before
                    log.info(
                        "%s: %d of %d files are copied, %.1f MB at %.1f MB/s",
                        target.root,
                        len(missing) - len(pending),
                        len(missing),
                        copied / 1e6,
                        copied / 1e6 / (logged - began),
                    )
        finally:
            pool.shutdown(cancel_futures=True)
        return self.bytes_copied - before

    def _copy_one(self, source: Storage, target: Storage, path: str, size: int | None) -> None:
        self.step(f"copy {path}")
        throttle = None if self.settings.bytes_per_second is None else self._wait
        try:
            copied = copy_file(source, target, path, checksum=self.settings.checksum, throttle=throttle)
        except FileNotFoundError:
            raise ReplicationError(
                f"{source.url(path)} was deleted before it was replicated, by a clean of the source "
                "that no longer waited for the replication, or by a user; restore it, or bootstrap the "
                "replication again (table-services replicate --bootstrap)",
                path=source.url(path),
            ) from None
        if size and copied != size:
            target.delete(path)
            raise ReplicationError(
                f"{source.url(path)} has {copied} bytes, and the timeline of its table says {size}; "
                "restore it",
                path=source.url(path),
            )
        with self._lock:
            self.bytes_copied += copied
            self.files_copied += 1

    def _wait(self, size: int) -> None:
        """Wait until a part may be copied, so that all threads together keep to the rate."""
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + size / (self.settings.bytes_per_second or size)
        time.sleep(begins - now)


def _is_there(target: Storage, path: str, size: int | None) -> bool:
    # A file gets its name only when it is whole.
    status = target.stat(path)
    return status is not None and (not size or status.size == size)
