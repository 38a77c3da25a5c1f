"""Names of base files, and the ids of file groups in them, as Hudi makes them."""

from __future__ import annotations

import re
import uuid
from functools import lru_cache

_NAME = re.compile(r"^([^_.][^_]*)_([^_]+)_(\d{14}(?:\d{3})?)\.parquet$")


def base_file_name(file_id: str, write_token: str, instant: str) -> str:
    """The name of a base file: ``<file id>_<write token>_<instant>.parquet``."""
    return f"{file_id}_{write_token}_{instant}.parquet"


@lru_cache(maxsize=65_536)  # a partition is listed again by each of its writes
def parse_base_file_name(name: str) -> tuple[str, str, str] | None:
    """The file id, write token and instant in a base file's name; None for another file."""
    match = _NAME.match(name)
    return (match[1], match[2], match[3]) if match else None


def new_file_id() -> str:
    """An id for a new file group, as Hudi makes them; none that looks like a bucket's."""
    while is_bucket(found := f"{uuid.uuid4()}-0"):
        pass
    return found


def is_bucket(file_id: str) -> bool:
    """Whether a file group is a bucket of Hudi's bucket index (``BucketIdentifier.newBucketFileIdPrefix``).

    :param file_id: of the file group: a bucket's begins with its number, of eight digits. Of other ids one in
        a hundred thousand that the JVM has made begins like a number below ten thousand, and none of ours.
    """
    return file_id.startswith("0000") and file_id[:8].isdecimal()
