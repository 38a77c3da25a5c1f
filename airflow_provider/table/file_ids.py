"""Ids of file groups, as Hudi makes them."""

from __future__ import annotations


def is_bucket(file_id: str) -> bool:
    """Whether a file group is a bucket of Hudi's bucket index (``BucketIdentifier.newBucketFileIdPrefix``).

    :param file_id: of the file group: a bucket's begins with its number, of eight digits. Of other ids one in
        a hundred thousand that the JVM has made begins like a number below ten thousand, and none of ours.
    """
    return file_id.startswith("0000") and file_id[:8].isdecimal()
