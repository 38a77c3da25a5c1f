"""What of a table on a local disk survives a power failure, and in which order.

A file system keeps what was written in memory, and puts it on the disk when it likes, in any order, unless it
is told to force it there (``fsync``). A file's content and its name, which belongs to the folder, are forced
apart: a name may survive whose content did not.

Steps in the order of the protocol are *ordered*: each is on the disk before the next one is taken, and the
content of a file is before its name. Whatever survives is then what a killed process leaves. Not ordered are

- data files, index files, and what is staged for the commit log: nobody looks at one before an ordered
  step has named it, and that step waits for all of them at once;
- the deletion of data files and index files among each other;
- heartbeats, locks and readers' leases, which mean nothing without the processes that they are about. But a
  heartbeat is there before anything that it stands for;
- markers: where one is lost, another Hudi writer's rollback leaves the data file, which nobody shows, to the
  cleaning of orphaned files.

The level ``commit`` does so. At ``full`` every step, ordered or not, is on the disk before it returns; at
``none`` nothing is forced. An object store has no such gap: what it has confirmed is kept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from threading import Lock, RLock

DURABILITY = "hoodie.table.durability"
"""The option of a table that says its level."""


class Durability(StrEnum):
    """What a power failure may take from a table on a local disk.

    :cvar NONE: anything that was written in the last half a minute or so.
    :cvar COMMIT: nothing that was reported.
    :cvar FULL: nothing that any step has written, also of a write under way.
    """

    NONE = "none"
    COMMIT = "commit"
    FULL = "full"


DEFAULT_DURABILITY = Durability.COMMIT


class Place(StrEnum):
    """What a path says of a file, relative to its table."""

    ORDERED = "ordered"
    """Steps of the protocol."""

    DATA = "data"
    """Data files and index files."""

    STAGED = "staged"
    """What an entry of the commit log names, and its publication moves to a timeline."""

    CLAIM = "claim"
    """Heartbeats."""

    FLEETING = "fleeting"
    """Locks, readers' leases, markers, and what the storage's clock is read off."""


PUBLISHED_FOLDERS = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline", ".hoodie/commit_log")
"""The timelines and the commit log: the folders in which a writer finds what others have done."""

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

_ONE_BY_ONE = 2  # up to so many are forced sooner one after the other than by threads
_AT_ONCE = 8


def place_of(path: str) -> Place:
    """What a path says of a file.

    :param path: relative to the table.
    """
    if path.endswith(_PARTITION_METADATA):
        return Place.ORDERED  # others build on it before its maker has committed
    if path.endswith(".hfile"):
        return Place.ORDERED  # who finds one that another process has written takes it for whole
    if path.startswith(".hoodie/metadata/") and path.endswith(_PENDING_DELTACOMMITS):
        return Place.DATA  # nobody looks at one that is pending there
    return next((place for folder, place in _PLACES if path.startswith(folder)), Place.DATA)


class Disk:
    """What one storage object has written to a local disk, and not forced there yet.

    :param base: absolute path of the table.
    :ivar level: see :class:`Durability`.
    """

    def __init__(self, base: str, level: Durability = DEFAULT_DURABILITY) -> None:
        self.level = level
        self._base = base
        self._files: set[str] = set()  # whose content is not forced
        self._folders: set[str] = set()  # in which a name was made, or taken away
        self._only_deletions = True  # of data files: that is all that the folders wait for
        self._anchored: set[str] = {"/"}  # folders whose own name is forced; nobody deletes one here
        self._lock = Lock()
        self._forcing = RLock()

    def place(self, target: str) -> Place:
        """What the path of a file says of it.

        :param target: absolute path.
        """
        return place_of(target.removeprefix(f"{self._base}/"))

    def wrote(self, target: str) -> None:
        """Remember that a file has content that is not forced.

        :param target: its absolute path, or that of its folder's entry to be.
        """
        with self._lock:
            self._files.add(target)

    def named(self, target: str) -> None:
        """Remember that a name was made, or taken away.

        :param target: the absolute path.
        """
        with self._lock:
            self._folders.add(_folder_of(target))
            self._only_deletions = False

    def wrote_data(self, target: str) -> None:
        """Remember a file that nobody looks at yet: its content and its name.

        :param target: its absolute path.
        """
        self.wrote(target)
        self.named(target)
        self.end_step()

    def end_step(self) -> None:
        """What ends every step: at the level ``full`` it is forced."""
        if self.level is Durability.FULL:
            self.force()

    def before_deletion(self, target: str) -> None:
        """What comes before a file is deleted.

        :param target: its absolute path.
        """
        place = self.place(target)
        if place is Place.DATA and self._only_deletions:
            return
        # What was staged is deleted once it is on a timeline, where somebody else has put it perhaps.
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
        """Force everything to the disk that was written through this object, in one group.

        :param folders: relative to the table: of these also what others have put there.
        :raises OSError: when the disk does not take it.
        """
        with self._forcing:  # who has nothing left to force waits for who is at it
            with self._lock:
                files, named, only_deletions = self._files, self._folders, self._only_deletions
                self._files, self._folders, self._only_deletions = set(), set(), True
            try:
                wanted = named | {f"{self._base}/{folder}" for folder in folders}
                above = self._not_anchored(wanted)
                wanted |= {_folder_of(folder) for folder in above}
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
            return  # what is not there has nothing in it
        except PermissionError:
            if target.startswith(self._base):
                raise
            return  # far above the table
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems keep names by themselves, and know no such call.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def _not_anchored(self, folders: Iterable[str]) -> set[str]:
        """These folders and those above, as far as their own names may be lost, whoever made them."""
        found: set[str] = set()
        for each in folders:
            folder = each
            while folder not in self._anchored and folder not in found and os.path.isdir(folder):  # noqa: PTH112
                found.add(folder)
                folder = _folder_of(folder)
        return found


def _folder_of(target: str) -> str:
    return target.rpartition("/")[0] or "/"


def _at_once(steps: list[Callable[[], None]]) -> None:
    if len(steps) <= _ONE_BY_ONE:
        for step in steps:
            step()
        return
    with ThreadPoolExecutor(
        min(len(steps), _AT_ONCE), "force"
    ) as pool:  # the disk makes one of their flushes
        for done in [pool.submit(step) for step in steps]:
            done.result()


def _force_file(target: str) -> None:
    try:
        descriptor = os.open(target, os.O_RDONLY)
    except FileNotFoundError:
        return  # deleted since
    try:
        _force_content(descriptor)
    finally:
        os.close(descriptor)


def _force_content(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # macOS
        os.fsync(descriptor)
