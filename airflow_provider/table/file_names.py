"""Names of base files and ids of file groups, in Hudi's form."""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from typing import NamedTuple

_NAME = re.compile(r"^([^_.][^_]*)_([^_]+)_(\d{14}(?:\d{3})?)\.parquet$")


class FileGroupId(NamedTuple):
    """The identity of a file group, the unit of conflict detection.

    :param partition_path: partition path relative to the table, ``""`` when not partitioned.
    :param file_id: the id that all slices of the group share.
    """

    partition_path: str
    file_id: str


def base_file_name(file_id: str, write_token: str, instant: str) -> str:
    """The name of a base file: ``<file id>_<write token>_<instant>.parquet``."""
    return f"{file_id}_{write_token}_{instant}.parquet"


@lru_cache(maxsize=65_536)  # every write to a partition lists it again
def parse_base_file_name(name: str) -> tuple[str, str, str] | None:
    """The file id, write token and instant in a base file's name; None for another file."""
    match = _NAME.match(name)
    return (match[1], match[2], match[3]) if match else None


def new_file_id() -> str:
    """An id for a new file group, in Hudi's form. It never looks like a bucket's id."""
    while is_bucket(found := f"{uuid.uuid4()}-0"):
        pass
    return found


def is_bucket(file_id: str) -> bool:
    """Whether a file group is a bucket of Hudi's bucket index (``BucketIdentifier.newBucketFileIdPrefix``).

    :param file_id: the id of the file group. A bucket's id begins with its number, of eight digits. Of the
        other ids that the JVM makes, one in a hundred thousand begins like a number below ten thousand; of
        those that this package makes, none.
    """
    return file_id.startswith("0000") and file_id[:8].isdecimal()
