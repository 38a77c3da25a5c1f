"""Files on a local disk, by system calls.

Python's file objects make ten system calls where three are enough, and fsspec makes three times as many as
Python. Each step registers the files that have to be forced to the disk; see
:mod:`~airflow_provider.table.storage.durability`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import BinaryIO, NamedTuple, cast

from airflow_provider.table.storage.durability import Disk, Place

STAGED = ".staged-"
"""Prefix of the temporary names of files that do not have their final name yet."""


class FileStatus(NamedTuple):
    """One file or folder in a listing.

    :param path: path relative to the storage's root, ``/`` separated.
    :param size: bytes.
    :param modified: seconds since the epoch, by the storage's clock.
    :param is_directory: whether it is a folder.
    """

    path: str
    size: int
    modified: float
    is_directory: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def read(target: str) -> bytes:
    """The file's content.

    :param target: absolute path.
    :raises FileNotFoundError: when there is no such file.
    """
    descriptor = os.open(target, os.O_RDONLY)
    try:
        size, parts = os.fstat(descriptor).st_size, []
        while part := os.read(descriptor, size + 1):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def append(target: str, data: bytes) -> bool:
    """Add data to the end of a file in one step; False when there is no file.

    :param target: absolute path.
    :param data: what is added.
    """
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    try:
        _write(descriptor, data)
    finally:
        os.close(descriptor)
    return True


def delete_folder(target: str) -> None:
    """Delete a folder with everything in it.

    :param target: absolute path. An absent folder is no error; a folder stays if another process puts a file
        into it meanwhile.
    """
    with suppress(OSError):
        with os.scandir(target) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    delete_folder(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(target)  # noqa: PTH106


def put(disk: Disk | None, target: str, data: bytes) -> None:
    """Create or replace a file in one step.

    :param disk: registers the files to be forced; None where no file has to be.
    :param target: absolute path.
    :param data: the content.
    """
    staged = _stage(target, data)
    if disk is None:
        delete_checksum(target)
        os.replace(staged, target)  # noqa: PTH105
        return
    if disk.place(target) in (Place.DATA, Place.STAGED) and _moved(staged, target):
        disk.wrote_data(target)
        return
    # Readers may have used the replaced file, so a power failure must lose neither version.
    disk.wrote(staged)
    disk.force()
    delete_checksum(target)
    os.replace(staged, target)  # noqa: PTH105
    disk.named(target)
    disk.force()


def put_if_absent(disk: Disk | None, target: str, data: bytes) -> bool:
    """Create a file with its whole content in one step, unless it exists.

    :param disk: registers the files to be forced; None where no file has to be.
    :param target: absolute path.
    :param data: the content.
    :return: True when this call created it.
    """
    place = disk.place(target) if disk is not None else None
    is_step = disk is not None and place is Place.ORDERED
    # A hard link appears whole or not at all, and never replaces a file. A rename would replace one, and
    # O_EXCL followed by a write would show readers an empty file.
    staged = _stage(target, data) if data else None
    try:
        if disk is not None and is_step:
            if staged is not None:
                disk.wrote(staged)
            disk.force()
        if staged is not None:
            os.link(staged, target)
        else:
            os.close(_create(target))
    except FileExistsError:
        return False
    finally:
        if staged is not None:
            os.unlink(staged)  # noqa: PTH108
    if disk is None:
        return True
    if is_step or place is Place.CLAIM:  # a heartbeat is on the disk before its writer's files
        disk.named(target)
        disk.end_step()
    else:
        disk.wrote_data(target)
    return True


def put_all_if_absent(disk: Disk | None, files: Mapping[str, bytes]) -> None:
    """Create many files, each like :func:`put_if_absent`, with one wait for the disk.

    :param disk: registers the files to be forced; None where no file has to be.
    :param files: content by absolute path.
    """
    staged: dict[str, str] = {}
    try:
        for target, data in files.items():
            staged[target] = _stage(target, data)
        if disk is not None:
            for each in staged.values():
                disk.wrote(each)
            disk.force()
        for target, each in staged.items():
            with suppress(FileExistsError):
                os.link(each, target)
                if disk is not None:
                    disk.named(target)
    finally:
        for each in staged.values():
            os.unlink(each)  # noqa: PTH108
    if disk is not None:
        disk.end_step()


def link_if_absent(disk: Disk | None, source: str, target: str) -> bool:
    """Give a file a second name, unless that name is taken.

    :param disk: registers the files to be forced; None where no file has to be.
    :param source: absolute path.
    :param target: absolute path.
    :return: True when this call made the target.
    :raises FileNotFoundError: when there is no source.
    """
    if disk is not None:
        disk.force()
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except FileNotFoundError:
        folder = os.path.dirname(target)  # noqa: PTH120
        if os.path.isdir(folder):  # noqa: PTH112
            raise
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as every other way to make a file does
        return link_if_absent(disk, source, target)
    if disk is not None:
        disk.named(target)
        disk.end_step()
    return True


def create(disk: Disk | None, target: str) -> BinaryIO:
    """Open a file for writing; its folder is made.

    :param disk: registers the files to be forced; None where no file has to be.
    :param target: absolute path.
    """
    descriptor = _open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    if disk is None:
        return open(descriptor, "wb")  # noqa: PTH123
    return cast(BinaryIO, _DataFile(descriptor, lambda: disk.wrote_data(target)))


def delete_checksum(target: str) -> None:
    """Delete the checksum that Hadoop's ``ChecksumFileSystem`` keeps beside a file that it has written.

    Hadoop refuses to read a file whose checksum differs, and reads any file without a checksum. So the
    checksum is deleted before the file changes.

    :param target: absolute path of a file that is about to be replaced or deleted.
    """
    if "/.hoodie/commit_log/" in target:
        return  # Hadoop writes no file there
    folder, _, name = target.rpartition("/")
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/.{name}.crc")  # noqa: PTH108


class _DataFile(io.BufferedWriter):
    """A file that is written in parts; it calls ``written`` once it is complete."""

    def __init__(self, descriptor: int, written: Callable[[], None]) -> None:
        super().__init__(io.FileIO(descriptor, "wb"))
        self._written = written

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._written()


def _open(target: str, flags: int) -> int:
    try:
        return os.open(target, flags, 0o666)
    except FileNotFoundError:
        # pathlib would take longer than the system calls.
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        return os.open(target, flags, 0o666)


def _create(target: str) -> int:
    return _open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:  # a disk that becomes full writes only a part
        left = left[os.write(descriptor, left) :]


def _stage(target: str, data: bytes) -> str:
    staged = f"{target.rpartition('/')[0]}/{STAGED}{os.urandom(16).hex()}"
    descriptor = _create(staged)
    try:
        _write(descriptor, data)
    except OSError as error:
        os.unlink(staged)  # noqa: PTH108
        error.filename = target
        raise
    finally:
        os.close(descriptor)
    return staged


def _moved(staged: str, target: str) -> bool:
    try:
        os.link(staged, target)
    except FileExistsError:
        return False
    os.unlink(staged)  # noqa: PTH108
    return True


def scan(path: str, target: str) -> list[FileStatus]:
    """The files and folders in a folder, except files that do not have their final name yet.

    :param path: path of the folder, relative to the table.
    :param target: its absolute path.
    :raises FileNotFoundError: when there is no such folder.
    """
    # os.scandir, because fsspec's local listing stats every entry several times.
    prefix = f"{path}/" if path else ""
    found = []
    with os.scandir(target) as entries:
        for entry in entries:
            if entry.name.startswith(STAGED):
                continue
            try:
                info = entry.stat()
            except FileNotFoundError:
                continue  # deleted between the listing and the stat
            found.append(FileStatus(prefix + entry.name, info.st_size, info.st_mtime, entry.is_dir()))
    return found


def scan_below(path: str, target: str) -> Iterator[FileStatus]:
    """The files in a folder and in the folders below it; see :func:`scan`."""
    for status in scan(path, target):
        if not status.is_directory:
            yield status
            continue
        with suppress(FileNotFoundError):  # deleted meanwhile
            yield from scan_below(status.path, f"{target}/{status.name}")
