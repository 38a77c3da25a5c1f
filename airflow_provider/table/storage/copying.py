"""Copying one file from one storage to another: whole or not at all, and compared with the original."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider.table.storage.local_files import STAGED
from airflow_provider.table.storage.storage import Storage

_CHUNK = 4 * 1024 * 1024


def copy_file(
    source: Storage,
    target: Storage,
    path: str,
    *,
    checksum: bool = True,
    throttle: Callable[[int], None] | None = None,
) -> int:
    """Copy a file to the same path of another storage.

    Within one store it copies it by itself: the kernel on a local disk, the server of an object store. The
    file gets its name once it is whole, and is what the original is.

    :param source: the storage that has it.
    :param target: the storage that gets it.
    :param path: relative to both roots.
    :param checksum: whether the contents are compared, besides the sizes.
    :param throttle: called with the bytes of each part before it is copied; may wait. Then the parts go
        through this process.
    :return: its size in bytes.
    :raises FileNotFoundError: when the source has no such file.
    :raises OSError: when the copy is not what the original is.
    """
    status = source.stat(path)
    if status is None:
        raise FileNotFoundError(f"{source.url(path)} does not exist")
    there, here = source._absolute(path), target._absolute(path)
    both_local, one_store = source._is_local and target._is_local, source._filesystem is target._filesystem
    if target._is_local:
        folder = Path(here).parent
        folder.mkdir(parents=True, exist_ok=True)
        copy = str(folder / f"{STAGED}{os.urandom(16).hex()}")
    else:
        copy = here
    try:
        digest = None
        if both_local and throttle is None:
            shutil.copyfile(there, copy)
        elif one_store and throttle is None:
            target._filesystem.cp_file(there, copy)
        else:
            digest = _stream(source._filesystem, there, target._filesystem, copy, throttle)
        target._filesystem.invalidate_cache(copy)
        size = int(target._filesystem.size(copy) or 0)
        is_same = size == status.size
        if is_same and checksum:
            digest = digest or _digest(source._filesystem, there)
            is_same = digest == _digest(target._filesystem, copy)
        _check(is_same, f"{target.url(path)} is not what {source.url(path)} is after the copy")
        if copy != here:
            os.replace(copy, here)  # noqa: PTH105
            target.sync_later([path])
    except BaseException:
        with suppress(OSError):
            target._filesystem.rm_file(copy)
        raise
    return size


def _check(is_so: bool, else_told: str) -> None:
    if not is_so:
        raise OSError(else_told)


def _stream(source: Any, there: str, target: Any, here: str, throttle: Callable[[int], None] | None) -> bytes:
    digest = hashlib.blake2b()
    with source.open(there, "rb") as reader, target.open(here, "wb") as writer:
        while part := reader.read(_CHUNK):
            if throttle is not None:
                throttle(len(part))
            digest.update(part)
            writer.write(part)
    return digest.digest()


def _digest(filesystem: Any, path: str) -> bytes:
    digest = hashlib.blake2b()
    with filesystem.open(path, "rb") as reader:
        while part := reader.read(_CHUNK):
            digest.update(part)
    return digest.digest()
