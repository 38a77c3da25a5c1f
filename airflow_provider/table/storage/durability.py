"""Which files of a table on a local disk survive a power failure, and in which order.

A file system keeps written data in memory, and writes it to the disk later and in any order, unless a process
forces it (``fsync``). The content of a file and its name, which belongs to the folder, are forced separately:
a name may survive without its content.

The steps of the protocol are *ordered*: each is on the disk before the next one begins, and the content of a
file before its name. So a power failure leaves what a killed process leaves. Not ordered are

- data files, index files, and files that are staged for the commit log: no reader opens one before an ordered
  step has named it, and that step forces all of them at once;
- the deletions of data files and index files, relative to each other;
- heartbeats, locks and readers' leases, which mean nothing without their processes. But a heartbeat is on the
  disk before the first file of its writer;
- markers: if a marker is lost, another Hudi writer's rollback leaves the data file. No snapshot shows this
  file, and the cleaning of orphaned files deletes it.

This is the level ``commit``. At ``full`` every step, ordered or not, is on the disk before it returns. At
``none`` nothing is forced. An object store needs no forcing: it keeps what it has confirmed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from enum import StrEnum
from functools import cache, partial
from threading import Lock, RLock

DURABILITY = "hoodie.table.durability"
"""The table's option for its level."""


class Durability(StrEnum):
    """What a table on a local disk may lose in a power failure.

    :cvar NONE: everything that was written in about the last half minute.
    :cvar COMMIT: only writes that were not reported as committed.
    :cvar FULL: nothing that a finished step has written, not even in a write that has not committed.
    """

    NONE = "none"
    COMMIT = "commit"
    FULL = "full"


DEFAULT_DURABILITY = Durability.COMMIT


class Place(StrEnum):
    """The kind of a file, by its path relative to the table."""

    ORDERED = "ordered"
    """Steps of the protocol."""

    DATA = "data"
    """Data files and index files."""

    STAGED = "staged"
    """Files that an entry of the commit log names, and that its publication moves to a timeline."""

    CLAIM = "claim"
    """Heartbeats."""

    FLEETING = "fleeting"
    """Locks, readers' leases, markers, and the files by which the storage's clock is read."""


PUBLISHED_FOLDERS = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline", ".hoodie/commit_log")
"""The timelines and the commit log: the folders in which a writer finds the work of other writers."""

_TIMELINES = PUBLISHED_FOLDERS[:2]

_PLACES = (
    (".hoodie/.heartbeat/", Place.CLAIM),
    (".hoodie/lock", Place.FLEETING),
    (".hoodie/.locks/", Place.FLEETING),
    (".hoodie/.readers/", Place.FLEETING),
    (".hoodie/.clock-", Place.FLEETING),
    (".hoodie/.temp/", Place.FLEETING),
    (".hoodie/commit_log/staged/", Place.STAGED),
    (".hoodie/metadata/.hoodie/", Place.ORDERED),
    (".hoodie/metadata/", Place.DATA),
    (".hoodie/", Place.ORDERED),
)
_PARTITION_METADATA = ".hoodie_partition_metadata"
_PENDING_DELTACOMMITS = (".deltacommit.requested", ".deltacommit.inflight")

_ONE_BY_ONE = 2  # up to so many files, one after the other is faster than threads
_AT_ONCE = 8
_WORTH_A_FILE_SYSTEM = 1000  # from so many files and folders on, forcing the whole file system is faster


def place_of(path: str) -> Place:
    """The kind of a file, by its path.

    :param path: path relative to the table.
    """
    if path.endswith(_PARTITION_METADATA):
        return Place.ORDERED  # other writers rely on such a file before its writer has committed
    if path.endswith(".hfile"):
        return Place.ORDERED  # a process takes an existing HFile of another one for complete
    if path.startswith(".hoodie/metadata/") and path.endswith(_PENDING_DELTACOMMITS):
        return Place.DATA  # no reader opens a pending deltacommit there
    return next((place for folder, place in _PLACES if path.startswith(folder)), Place.DATA)


class Disk:
    """The files that one storage object has written to a local disk and not forced yet.

    :param base: absolute path of the table.
    :ivar level: see :class:`Durability`.
    """

    def __init__(self, base: str, level: Durability = DEFAULT_DURABILITY) -> None:
        self.level = level
        self._base = base
        self._files: set[str] = set()  # files whose content is not forced
        self._folders: set[str] = set()  # folders in which a name was created or deleted
        self._only_deletions = True  # whether only deletions of data files wait in the folders
        self._anchored: set[str] = {"/"}  # folders whose own name is forced; none is deleted
        self._lock = Lock()
        self._forcing = RLock()

    def place(self, target: str) -> Place:
        """The kind of a file.

        :param target: absolute path.
        """
        return place_of(target.removeprefix(f"{self._base}/"))

    def wrote(self, target: str) -> None:
        """Remember that a file has content that is not forced.

        :param target: its absolute path, which may be a temporary one.
        """
        with self._lock:
            self._files.add(target)

    def named(self, target: str) -> None:
        """Remember that a name was created or deleted.

        :param target: the absolute path.
        """
        with self._lock:
            self._folders.add(_folder_of(target))
            self._only_deletions = False

    def wrote_data(self, target: str) -> None:
        """Remember a new file that no reader opens yet: its content and its name.

        :param target: its absolute path.
        """
        self.wrote(target)
        self.named(target)
        self.end_step()

    def end_step(self) -> None:
        """End a step; the level ``full`` forces it."""
        if self.level is Durability.FULL:
            self.force()

    def before_deletion(self, target: str) -> None:
        """Force the files that have to be on the disk before a file is deleted.

        :param target: its absolute path.
        """
        place = self.place(target)
        if place is Place.DATA and self._only_deletions:
            return
        # A staged file is deleted once it is on a timeline; another writer may have put it there.
        self.force(*(_TIMELINES if place is Place.STAGED else ()))

    def deleted(self, target: str) -> None:
        """Remember that a file was deleted.

        :param target: its absolute path.
        """
        with self._lock:
            self._folders.add(_folder_of(target))
            if self.place(target) is not Place.DATA:
                self._only_deletions = False
        self.end_step()

    def force(self, *folders: str) -> None:
        """Force everything that was written through this object to the disk, in one group.

        :param folders: paths relative to the table; in these folders, names that other processes have put are
            forced too.
        :raises OSError: when the disk reports an error.
        """
        with self._forcing:  # a thread with nothing left to force waits for the thread that forces it
            with self._lock:
                files, named, only_deletions = self._files, self._folders, self._only_deletions
                self._files, self._folders, self._only_deletions = set(), set(), True
            try:
                wanted = named | {f"{self._base}/{folder}" for folder in folders}
                above = self._not_anchored(wanted)
                wanted |= {_folder_of(folder) for folder in above}
                if len(files) + len(wanted) < _WORTH_A_FILE_SYSTEM or not force_file_systems(
                    {*wanted, *map(_folder_of, files)}
                ):
                    _at_once(
                        [
                            *(partial(_force_file, file) for file in sorted(files)),
                            *(partial(self._force_folder, folder) for folder in sorted(wanted)),
                        ]
                    )
                self._anchored |= above
            except BaseException:
                with self._lock:
                    self._files |= files
                    self._folders |= named
                    self._only_deletions &= only_deletions
                raise

    def _force_folder(self, target: str) -> None:
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return  # a folder that does not exist has no names
        except PermissionError:
            if target.startswith(self._base):
                raise
            return  # the folder is above the table
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems persist names themselves, and do not support this call.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def _not_anchored(self, folders: Iterable[str]) -> set[str]:
        """The folders and parent folders whose own names are not forced yet, whichever process made them."""
        found: set[str] = set()
        for each in folders:
            folder = each
            while folder not in self._anchored and folder not in found and os.path.isdir(folder):  # noqa: PTH112
                found.add(folder)
                folder = _folder_of(folder)
        return found


def force_file_systems(folders: Iterable[str]) -> bool:
    """Force everything on the file systems of some folders to the disk, including files of other processes.

    :param folders: absolute paths; those that do not exist are ignored.
    :return: False when the operating system cannot, or hides errors of the disk, as Linux did before 5.8.
    :raises OSError: when the disk reports an error.
    """
    syncfs = _syncfs()
    if syncfs is None:
        return False
    by_device: dict[int, str] = {}
    for folder in folders:
        with suppress(FileNotFoundError):
            by_device.setdefault(os.stat(folder).st_dev, folder)  # noqa: PTH116
    for folder in by_device.values():
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), folder)
        finally:
            os.close(descriptor)
    return True


@cache
def _syncfs() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < (5, 8):
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found


def _folder_of(target: str) -> str:
    return target.rpartition("/")[0] or "/"


def _at_once(steps: list[Callable[[], None]]) -> None:
    if len(steps) <= _ONE_BY_ONE:
        for step in steps:
            step()
        return
    pool = _forcing_threads()
    begun = [pool.submit(step) for step in steps]  # the disk merges flushes that arrive at the same time
    wait(begun)
    for done in begun:
        done.result()


@cache
def _forcing_threads() -> ThreadPoolExecutor:
    # All tables of a process share them, because starting threads takes longer than a flush of a fast disk.
    return ThreadPoolExecutor(_AT_ONCE, "force")


os.register_at_fork(after_in_child=_forcing_threads.cache_clear)  # no thread survives a fork


def _force_file(target: str) -> None:
    try:
        descriptor = os.open(target, os.O_RDONLY)
    except FileNotFoundError:
        return  # the file was deleted since
    try:
        _force_content(descriptor)
    finally:
        os.close(descriptor)


def _force_content(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # macOS
        os.fsync(descriptor)
