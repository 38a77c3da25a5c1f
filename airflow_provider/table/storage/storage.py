"""The one interface between the engine and the storage of a table.

It has exactly the operations that the commit protocol needs. Everything above uses :class:`Storage`, so that
a test can insert a fault or a scheduler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow.fs

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.table.storage import local_files
from airflow_provider.table.storage.durability import DEFAULT_DURABILITY, Disk, Durability, Place
from airflow_provider.table.storage.local_files import FileStatus

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem


class Storage:
    """A folder on a local disk, or on a file system known to fsspec; all paths are relative to it.

    :param root: absolute local path, or a URL such as ``s3://bucket/lake/flights``.
    :param options: keyword arguments of the fsspec file system.
    :ivar timeline_zone: the time zone of the table's instant times: ``UTC``, ``LOCAL`` or a name; see
        :mod:`~airflow_provider.table.timeline.zone`.
    :ivar timeline_layout: the table's timeline layout version.
    :raises InvalidInputError: when the root is a relative path or its scheme is unknown.
    """

    _is_local = True
    _disk: Disk | None = None
    _filesystem: AbstractFileSystem
    """The fsspec file system of a URL; a local path is read without fsspec."""

    def __init__(self, root: str, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        if root.startswith("file://"):
            root = root.removeprefix("file://")
        if "://" not in root and not Path(root).is_absolute():
            raise InvalidInputError(
                f"table location {root!r} is a relative path; give an absolute path or a URL", location=root
            )
        self.root = root.rstrip("/") or "/"
        self._base = root.rstrip("/")
        if "://" in root:
            self._connect(root)
        self._disk = Disk(self._base) if self._is_local else None
        self._within: dict[str, Storage] = {}
        self._clock: tuple[float, float] | None = None
        self.timeline_zone = "UTC"
        self.timeline_layout = 2

    def _connect(self, url: str) -> None:
        # Imported here: fsspec imports asyncio and ssl, which a table on a local disk does not need.
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        try:
            self._filesystem, stripped = url_to_fs(url, **self.options)
        except (ValueError, ImportError, OSError) as error:
            said = str(error).partition("\n")[0]
            raise InvalidInputError(
                f"table location {url!r} cannot be opened: {said}; install what its file system needs on "
                "every machine that runs tasks, or give another location",
                location=url,
            ) from error
        self._base = str(stripped).rstrip("/")
        self._is_local = isinstance(self._filesystem, LocalFileSystem)

    def __getstate__(self) -> dict[str, Any]:
        of_table = {name: getattr(self, name) for name in _OF_TABLE}
        return {"root": self.root, "options": self.options, "of_table": of_table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Storage.__init__(self, state["root"], state["options"])
        for name, value in state["of_table"].items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    def url(self, path: str) -> str:
        """The absolute path with the root's scheme, for other programs."""
        return f"{self.root}/{path}" if path else self.root

    def within(self, folder: str) -> Storage:
        """The storage of a folder in this one; always the same object, so that its caches stay.

        :param folder: path relative to this storage's root.
        """
        if folder not in self._within:
            self._within[folder] = Storage(self.url(folder), self.options)
            self._within[folder]._disk = self._disk
        return self._within[folder]

    def parents(self) -> Iterator[Storage]:
        """The storage of each parent folder, the innermost first.

        For a local folder, symbolic links are resolved first.
        """
        if self._is_local:
            for folder in Path(self._base or "/").resolve().parents:
                yield Storage(str(folder), self.options)
            return
        scheme, _, rest = self.root.partition("://")
        while rest := rest.rpartition("/")[0].rstrip("/"):
            yield Storage(f"{scheme}://{rest}", self.options)

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """The folders at any depth, parents first, each with the names of its files.

        A folder that cannot be listed is left out.
        """
        if not self._is_local:
            self._filesystem.invalidate_cache()
        walk = os.walk(self._base) if self._is_local else self._filesystem.walk(self._base)
        for folder, _, files in walk:
            yield str(folder).removeprefix(self._base).strip("/"), list(files)

    @property
    def durability(self) -> Durability:
        """What a power failure may lose; see :mod:`~airflow_provider.table.storage.durability`."""
        return self._disk.level if self._disk is not None else DEFAULT_DURABILITY

    @durability.setter
    def durability(self, level: Durability) -> None:
        if self._disk is not None:
            self._disk.level = level

    def sync(self, *folders: str) -> None:
        """Force everything that was written through this object to the disk, to survive a power failure.

        :param folders: paths relative to the table's root; in these folders, names that other processes have
            put are forced too.
        :raises OSError: when the disk reports an error.
        """
        if (disk := self._forced()) is not None:
            disk.force(*folders)

    def sync_later(self, paths: Iterable[str] = (), *, folders: Iterable[str] = ()) -> None:
        """Force files of other processes to the disk, together with the next step.

        :param paths: paths of files, relative to the root.
        :param folders: paths of folders, relative to the root, whose names are forced.
        """
        if (disk := self._forced()) is not None:
            for path in paths:
                disk.wrote_data(self._absolute(path))
            for folder in folders:
                disk.named(f"{self._absolute(folder)}/")

    def _forced(self, *but: Place, path: str = "") -> Disk | None:
        """The disk, if a file has to be forced to it; None for files that need not be forced."""
        disk = self._disk
        if disk is None or disk.level is Durability.NONE:
            return None
        return None if but and disk.place(self._absolute(path)) in but else disk

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with its whole content in one atomic step, unless it exists.

        The safety of the commit protocol rests on this: of any number of callers exactly one creates the
        file, and no reader sees a part of it.

        :return: True when this call created the file, False when it existed.
        """
        target = self._absolute(path)
        if self._is_local:
            return local_files.put_if_absent(self._forced(Place.FLEETING, path=path), target, data)
        try:
            try:
                self._filesystem.pipe_file(target, data, mode="create")
            except FileNotFoundError:  # a file system with folders lacks the folder; object stores have none
                self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._filesystem.pipe_file(target, data, mode="create")
        except FileExistsError:
            return False
        return True

    def put_all_if_absent(self, files: Mapping[str, bytes]) -> None:
        """Create many files, each like :meth:`put_if_absent`, with one wait for a local disk.

        :param files: content by path relative to the root; no content is empty.
        """
        if self._is_local:
            disk = self._forced()
            local_files.put_all_if_absent(disk, {self._absolute(path): files[path] for path in files})
            return
        for path, data in files.items():
            self.put_if_absent(path, data)

    @property
    def moves_atomically(self) -> bool:
        """Whether :meth:`move_if_absent` is one atomic step, which no paused process can finish late."""
        return self._is_local

    def move_if_absent(self, source: str, target: str) -> bool:
        """Give a file another name, unless that name is taken; in both cases delete the old name.

        On a local file system no process copies the content. So a process that is paused here cannot create
        the target again after another process has deleted both names.

        :return: True when this call created the target, False when it existed.
        :raises FileNotFoundError: when there is no source, whether or not there is a target.
        """
        if not self._is_local:
            moved = self.put_if_absent(target, self.read(source))
            self.delete(source)
            return moved
        moved = Storage.link_if_absent(self, source, target)
        self.sync_later(folders=[target.rpartition("/")[0]])  # another process may have made the link
        Storage.delete(self, source)
        return moved

    def link_if_absent(self, source: str, target: str) -> bool:
        """Give a file a second name, or on an object store a copy, unless that name is taken.

        :return: True when this call created the target, False when it existed.
        :raises FileNotFoundError: when there is no source.
        """
        if not self._is_local:
            return self.put_if_absent(target, self.read(source))
        disk = self._forced(Place.FLEETING, path=target)
        return local_files.link_if_absent(disk, self._absolute(source), self._absolute(target))

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file; a reader sees either all of the old or all of the new content."""
        target = self._absolute(path)
        if not self._is_local:
            self._filesystem.pipe_file(target, data)
            return
        local_files.put(self._forced(Place.CLAIM, Place.FLEETING, path=path), target, data)

    @property
    def takes_appends(self) -> bool:
        """Whether :meth:`append` works; an object store cannot add to an object."""
        return self._is_local

    def append(self, path: str, data: bytes) -> bool:
        """Add data to the end of a file, in one step that no other thread's data can divide.

        The file is not forced to the disk.

        :return: False when there is no such file; nothing is written then.
        """
        return local_files.append(self._absolute(path), data)

    def read(self, path: str) -> bytes:
        """The file's content.

        :raises FileNotFoundError: when there is no such file.
        """
        if self._is_local:
            return local_files.read(self._absolute(path))
        return cast(bytes, self._filesystem.cat_file(self._absolute(path)))

    @property
    def worth_skipping(self) -> int:
        """The gap in bytes between two parts of a file above which two requests are faster than one."""
        return _WORTH_SKIPPING_HERE if self._is_local else _WORTH_SKIPPING_AFAR

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """A part of the file's content, in one request.

        :param start: position of the first byte.
        :param end: position after the last byte; it may be beyond the file's end.
        :raises FileNotFoundError: when there is no such file.
        """
        if self._is_local:
            with open(self._absolute(path), "rb", buffering=0) as source:  # noqa: PTH123
                return os.pread(source.fileno(), end - start, start)
        return cast(bytes, self._filesystem.cat_file(self._absolute(path), start=start, end=end))

    def list(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        """Files and folders under a folder; an absent folder is an empty one.

        :param recursive: whether to descend; then folders themselves are left out.
        """
        target = self._absolute(path)
        try:
            if self._is_local:
                return (
                    list(local_files.scan_below(path, target))
                    if recursive
                    else local_files.scan(path, target)
                )
            self._filesystem.invalidate_cache(target)
            if recursive:
                found = self._filesystem.find(target, detail=True).values()
            else:
                found = self._filesystem.ls(target, detail=True)
        except FileNotFoundError:
            return []
        statuses = [self._status(info) for info in found]
        return [status for status in statuses if status.path != path and not _is_staged(status.name)]

    def names(self, path: str) -> Iterable[str]:
        """Names of the files and folders in a folder.

        This is cheaper than :meth:`list` when only names matter, as on the timeline.
        """
        target = self._absolute(path)
        try:
            if self._is_local:
                found = os.listdir(target)  # noqa: PTH208 - names are all that is wanted
            else:
                self._filesystem.invalidate_cache(target)
                found = [
                    name.rstrip("/").rpartition("/")[2] for name in self._filesystem.ls(target, detail=False)
                ]
        except FileNotFoundError:
            return []
        # Each commit lists thousands of names several times: a step per name would double the time.
        if _STAGED not in "/".join(found):
            return found
        return [name for name in found if not _is_staged(name)]

    def sizes(self, path: str) -> Mapping[str, int | None]:
        """Names of the files and folders in a folder, with their sizes in bytes if the listing has them.

        The listing of an object store has them, which saves a request per file; a local listing does not.
        """
        if self._is_local:
            return dict.fromkeys(self.names(path))
        return {status.name: status.size for status in self.list(path)}

    def folders_holding(self, *names: str) -> Iterable[str]:
        """Folders at any depth that have a file of one of these names; the root is ``""``.

        The search leaves out ``.hoodie``. A local search does not descend below a folder that it has found.

        :param names: names of files.
        """
        if self._is_local:
            return _walk(self._base, "", names)
        found = (status.path for status in self.list("", recursive=True) if status.name in names)
        folders = dict.fromkeys(path.rpartition("/")[0] for path in found)
        return [folder for folder in folders if not f"{folder}/".startswith(_OWN_FOLDER)]

    def stat(self, path: str) -> FileStatus | None:
        """The status of one file or folder; None when it does not exist."""
        target = self._absolute(path)
        try:
            if self._is_local:
                info = os.stat(target)  # noqa: PTH116
                return FileStatus(path, info.st_size, info.st_mtime, S_ISDIR(info.st_mode))
            self._filesystem.invalidate_cache(target)
            return self._status(self._filesystem.info(target))
        except FileNotFoundError:
            return None

    def delete(self, path: str) -> bool:
        """Delete one file.

        :return: True when this call deleted it, False when it did not exist.
        """
        target = self._absolute(path)
        if (disk := self._forced(Place.CLAIM, Place.FLEETING, path=path)) is not None:
            disk.before_deletion(target)
        try:
            if self._is_local:
                local_files.delete_checksum(target)
                os.unlink(target)  # noqa: PTH108
            else:
                self._filesystem.rm_file(target)
        except FileNotFoundError:
            return False
        if disk is not None:
            disk.deleted(target)
        return True

    def delete_folder(self, path: str) -> None:
        """Delete a folder with everything in it; an absent folder is no error.

        Nothing is forced to the disk, and a file that another process puts meanwhile may stay. So this is
        only for files that no reader or writer needs any more.

        :param path: path relative to the root.
        """
        target = self._absolute(path)
        if self._is_local:
            local_files.delete_folder(target)
            return
        self._filesystem.invalidate_cache(target)
        with suppress(FileNotFoundError):
            self._filesystem.rm(target, recursive=True)

    def clock(self, *, anew: bool = False) -> float:
        """The time by the storage's own clock, in seconds since the epoch.

        Only this clock can tell the age of a file, because the machine's clock may differ. The method puts a
        file and reads its time. For up to a minute it then adds the time that has passed in this process. On
        a read-only storage it returns the machine's time.

        :param anew: whether to read the storage's clock in any case.
        """
        here = time.monotonic()
        if self._clock is None or anew or here - self._clock[0] > _CLOCK_SECONDS:
            self._clock = (here, self._read_clock())
        read_at, told = self._clock
        return told + (here - read_at)

    def _read_clock(self) -> float:
        path = f"{CLOCK_PREFIX}{os.urandom(16).hex()}"
        try:
            self.put(path, b"")
            status = self.stat(path)
            self.delete(path)
        except OSError:  # this process may only read
            status = None
        return time.time() if status is None else status.modified

    def create(self, path: str) -> BinaryIO:
        """Open a data file for writing, and create its folder.

        The write is not atomic: a data file becomes visible by a commit, not by its existence.
        """
        target = self._absolute(path)
        if self._is_local:
            return local_files.create(self._forced(), target)
        return cast(BinaryIO, self._filesystem.open(target, "wb"))

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading.

        :raises FileNotFoundError: when there is no such file.
        """
        if self._is_local:
            return open(self._absolute(path), "rb")  # noqa: PTH123
        return cast(BinaryIO, self._filesystem.open(self._absolute(path), "rb"))

    def arrow(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """The pyarrow file system and the root's path in it, for dataset scans."""
        if self._is_local:
            return _local_files(), self._base
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(self._filesystem)), self._base

    def _absolute(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base

    def _status(self, info: Mapping[str, Any]) -> FileStatus:
        modified = info.get("mtime", info.get("LastModified", info.get("created", 0.0)))
        if hasattr(modified, "timestamp"):
            modified = modified.timestamp()
        relative = str(info["name"]).rstrip("/").removeprefix(self._base).lstrip("/")
        return FileStatus(relative, int(info.get("size") or 0), float(modified), info["type"] == "directory")


@cache
def _local_files() -> pyarrow.fs.LocalFileSystem:
    return pyarrow.fs.LocalFileSystem()


_OF_TABLE = ("durability", "timeline_zone", "timeline_layout")
"""The attributes that an opened table sets on its storage object."""

CLOCK_PREFIX = ".hoodie/.clock-"

_CLOCK_SECONDS = 60.0

_WORTH_SKIPPING_HERE = 64 * 1024
_WORTH_SKIPPING_AFAR = 256 * 1024

_STAGED = local_files.STAGED


_OWN_FOLDER = ".hoodie/"


def _walk(base: str, path: str, names: tuple[str, ...]) -> Iterator[str]:
    # os.scandir recognises folders without a stat for each of a partition's many files.
    target = f"{base}/{path}" if path else base
    if any(os.path.exists(f"{target}/{name}") for name in names):  # noqa: PTH110
        yield path
        return
    try:
        with os.scandir(target) as entries:
            folders = [entry.name for entry in entries if entry.is_dir() and entry.name != _OWN_FOLDER[:-1]]
    except FileNotFoundError:
        return
    for folder in folders:
        yield from _walk(base, f"{path}/{folder}" if path else folder, names)


def _is_staged(name: str) -> bool:
    return name.startswith(_STAGED)
