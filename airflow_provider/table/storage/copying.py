"""Copying a file to another storage, whole or not at all, with a comparison; and moving a table's folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import xxhash

from airflow_provider.table.storage.local_files import STAGED
from airflow_provider.table.storage.storage import Storage

_CHUNK = 4 * 1024 * 1024
_COMPARED = 256 * 1024  # bytes compared at a time; they stay in a core's cache


def copy_file(
    source: Storage,
    target: Storage,
    path: str,
    *,
    checksum: bool = True,
    throttle: Callable[[int], None] | None = None,
) -> int:
    """Copy a file to the same path of another storage.

    Within one store, the store itself copies the file: the kernel on a local disk, the server of an object
    store. A file on a local disk gets its final name only after the comparison.

    :param source: the storage that has the file.
    :param target: the storage that gets the copy.
    :param path: path relative to both roots.
    :param checksum: whether the contents are compared, besides the sizes.
    :param throttle: called with the number of bytes of each part before it is copied; it may wait. With a
        throttle, all parts go through this process.
    :return: size of the file in bytes.
    :raises FileNotFoundError: when the source has no such file.
    :raises OSError: when the copy differs from the original.
    """
    status = source.stat(path)
    if status is None:
        raise FileNotFoundError(f"{source.url(path)} does not exist")
    folder = path.rpartition("/")[0]
    # A local file gets its name by a rename; an object store shows no file before it is complete.
    copy = f"{folder}/{STAGED}{os.urandom(16).hex()}".lstrip("/") if target._is_local else path
    try:
        digest = None
        if source._is_local and target._is_local and throttle is None:
            Path(target._absolute(folder)).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source._absolute(path), target._absolute(copy))
            if target._forced() is not None:
                # Forced here, while other threads copy, so that the commit need not wait for it.
                with Path(target._absolute(copy)).open("rb") as copied:
                    os.fdatasync(copied.fileno())
        elif _is_one_store(source, target) and throttle is None:
            target._filesystem.cp_file(source._absolute(path), target._absolute(copy))
        else:
            digest = _stream(source, path, target, copy, throttle)
        there = target.stat(copy)
        is_same = there is not None and there.size == status.size
        if is_same and checksum and digest is None:
            is_same = _is_equal(source, path, target, copy)
        elif is_same and checksum:
            is_same = digest == _digest(target, copy)
        _check(is_same, f"{target.url(path)} is not what {source.url(path)} is after the copy")
        if copy != path:
            os.replace(target._absolute(copy), target._absolute(path))  # noqa: PTH105
            target.sync_later([path])
    except BaseException:
        with suppress(OSError):
            target.delete(copy)
        raise
    return status.size


def _is_one_store(source: Storage, target: Storage) -> bool:
    # fsspec has one object for each store and set of options.
    return not source._is_local and not target._is_local and source._filesystem is target._filesystem


def _check(is_so: bool, else_told: str) -> None:
    if not is_so:
        raise OSError(else_told)


def _stream(
    source: Storage, path: str, target: Storage, copy: str, throttle: Callable[[int], None] | None
) -> bytes:
    digest = xxhash.xxh3_128()
    with source.open(path) as reader, target.create(copy) as writer:
        while part := reader.read(_CHUNK):
            if throttle is not None:
                throttle(len(part))
            digest.update(part)
            writer.write(part)
    return digest.digest()


def _is_equal(source: Storage, path: str, target: Storage, copy: str) -> bool:
    """Whether two files of one size have the same content. A comparison is cheaper than two digests."""
    with source.open(path) as reader, target.open(copy) as reader_of_copy:
        while part := reader.read(_COMPARED):
            if part != reader_of_copy.read(len(part)):
                return False
    return True


def _digest(storage: Storage, path: str) -> bytes:
    digest = xxhash.xxh3_128()
    with storage.open(path) as reader:
        while part := reader.read(_CHUNK):
            digest.update(part)
    return digest.digest()


def move_folder(storage: Storage, target: str) -> None:
    """Rename a table's folder, with everything in it.

    A local disk does this in one step. An object store copies and deletes file by file; if that is
    interrupted, a second call finishes it.

    :param storage: the storage of the folder.
    :param target: absolute path or URL in the same store.
    """
    if storage._is_local:
        os.rename(storage._absolute(""), target.removeprefix("file://"))  # noqa: PTH104
        return
    storage._filesystem.mv(storage._absolute(""), target, recursive=True)
    storage._filesystem.invalidate_cache()
