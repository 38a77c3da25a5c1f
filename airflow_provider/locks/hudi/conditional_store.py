"""Conditional writes, by s3fs, on an object store with the protocol of S3."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.asyn import sync

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.locks.contender import missing_library
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from s3fs import S3FileSystem

# The endpoints and buckets that honour conditions, as far as this process has checked.
_HONOURING: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class StoredObject:
    """An object with two times by the store's clock, in whole seconds since the epoch.

    :param modified: the time of the last write.
    :param now: the time of the read.
    """

    data: bytes
    etag: str
    modified: float
    now: float


class ConditionalStore:
    """The requests that a lock needs, with the options of the table's own storage.

    :param storage: the table's storage.
    :param timeout: seconds to wait for a connection and for each answer.
    :raises InvalidConnectionError: when the table is on another kind of storage, or s3fs is not installed.
    """

    def __init__(self, storage: Storage, timeout: float) -> None:
        try:
            import aiohttp
            import s3fs
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError as error:
            raise missing_library("storage", error.name, "s3") from None
        #: The errors of a store that cannot be used.
        self.unusable: tuple[type[Exception], ...] = (OSError, BotoCoreError, aiohttp.ClientError)
        config = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"max_attempts": 1}}
        config |= storage.options.get("config_kwargs") or {}
        filesystem, base = fsspec.core.url_to_fs(
            storage.root, **({**storage.options, "config_kwargs": config} if "://" in storage.root else {})
        )
        if not isinstance(filesystem, s3fs.S3FileSystem):
            raise InvalidConnectionError(
                "lock provider 'storage' needs a store that writes on a condition (S3 and what speaks its "
                f"protocol); the table is at {storage.root}: choose 'filesystem', 'zookeeper' or 'database'",
                location=storage.root,
            )
        # s3fs would repeat each request up to five times, but the contender decides how long it waits.
        filesystem.retries = 1
        self._filesystem: S3FileSystem = filesystem
        self._base = str(base).rstrip("/")

    def get(self, path: str) -> StoredObject | None:
        """Read an object; None when it does not exist."""
        bucket, key = self._address(path)
        try:
            answer = self._filesystem.call_s3("get_object", Bucket=bucket, Key=key)
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise
            return None
        data = sync(self._filesystem.loop, answer["Body"].read)
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return StoredObject(data, answer["ETag"], answer["LastModified"].timestamp(), now.timestamp())

    def put(self, path: str, data: bytes, *, if_match: str | None) -> str | None:
        """Replace an object that still has an ETag, or create one that does not exist.

        :param if_match: the ETag; None for an object that must not exist.
        :return: the new ETag; None when the condition did not hold.
        """
        bucket, key = self._address(path)
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        try:
            answer = self._filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
        except OSError as error:
            # 412 the condition does not hold; 409 another conditional write is under way;
            # NoSuchKey the object to be replaced is gone.
            if _status(error) in (409, 412) or (if_match is not None and _code(error) == "NoSuchKey"):
                return None
            raise
        return str(answer["ETag"])

    def check_conditions(self) -> None:
        """Check, once per process and bucket, that the store honours the conditions.

        Some stores with S3's protocol ignore them, so that every contender would win.

        :raises InvalidConnectionError: when the store does not honour them.
        """
        endpoint = str(self._filesystem.endpoint_url or self._filesystem.client_kwargs.get("endpoint_url"))
        bucket, _ = self._address("")
        key = (endpoint, bucket)
        if key not in _HONOURING:
            path = f".hoodie/.locks/probe-{uuid.uuid4().hex}"
            etag = self.put(path, b"1", if_match=None)
            try:
                honoured = (
                    etag is not None
                    and self.put(path, b"2", if_match=None) is None
                    and self.put(path, b"3", if_match='"0123456789abcdef0123456789abcdef"') is None
                    and self.put(path, b"4", if_match=etag) is not None
                )
            finally:
                self._filesystem.rm_file(f"{self._base}/{path}")
            if not honoured:
                raise InvalidConnectionError(
                    f"the object store at {endpoint} ignores If-None-Match or If-Match, so it cannot keep a "
                    "lock (nor a commit log); choose lock provider 'zookeeper' or 'database'",
                    endpoint=endpoint,
                )
            _HONOURING.add(key)

    def _address(self, path: str) -> tuple[str, str]:
        bucket, key, _ = self._filesystem.split_path(f"{self._base}/{path}")
        return bucket, key


def _response(error: BaseException) -> Mapping[str, Any]:
    # s3fs turns botocore's error into one of Python's, and keeps it as the cause.
    return getattr(error.__cause__, "response", None) or {}


def _status(error: BaseException) -> int:
    return int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code"))
