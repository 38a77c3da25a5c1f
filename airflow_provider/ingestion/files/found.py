"""The files of a source, found by the rules of Spark's reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    MissingSourceError,
    SparkNeededError,
    TableServiceError,
    UnreadableSourceError,
)
from airflow_provider.ingestion.ingest_job import Source

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

# Parts of Hadoop's patterns that fsspec lacks, or gives another meaning.
_OTHER_PATTERN = re.compile(r"[{}\\]|\*\*|\[[!^]")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    :param path: the path on its file system.
    :param size: bytes.
    """

    path: str
    size: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source, in the order of their paths.

    :param filesystem: the file system of the files.
    :param files: the files; at least one.
    """

    filesystem: AbstractFileSystem
    files: Sequence[SourceFile]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def __str__(self) -> str:
        return f"{len(self.files)} file{'s' if len(self.files) > 1 else ''}"


def find_files(source: Source, storage_options: Mapping[str, Any]) -> SourceFiles:
    """Find the files of a source.

    Files whose name begins with ``_`` or ``.`` are left out, as in Spark: jobs write such files next to their
    data, and rely on this.

    :param source: the source.
    :param storage_options: keyword arguments of its fsspec file system.
    :raises InvalidInputError: when the source has no path.
    :raises MissingSourceError: when one of the paths does not exist.
    :raises EmptySourceError: when the paths exist, but have no file.
    :raises UnreadableSourceError: when the file system cannot be opened or listed.
    :raises SparkNeededError: when Spark would find other files, or columns in the names of folders.
    """
    # Imported here: fsspec imports asyncio and ssl, and most importers of this room find no files.
    from fsspec.core import url_to_fs

    if not source.paths:
        raise InvalidInputError("an ingestion needs a source: paths to read, or a DataFrame")
    found: list[SourceFile] = []
    filesystems: list[AbstractFileSystem] = []
    for path in source.paths:
        try:
            filesystem, inside = url_to_fs(path, **storage_options)
            filesystems.append(filesystem)
            found += _matching(filesystem, str(inside), path)
        except FileNotFoundError as error:
            raise _missing(path) from error
        except TableServiceError:
            raise
        except Exception as error:  # each file system has its own errors
            raise UnreadableSourceError(
                f"source {path} cannot be listed: {type(error).__name__}: {error}; check the path, and the "
                "storage connection",
                source=path,
            ) from error
    if not found:
        raise EmptySourceError(
            f"source {source} holds no {source.source_format} file; check the path and the format",
            source=list(source.paths),
        )
    if len({type(each) for each in filesystems}) > 1:
        raise SparkNeededError("its paths are on several file systems")
    if len({file.path for file in found}) < len(found):
        raise SparkNeededError("its paths name a file twice")
    return SourceFiles(filesystems[0], found)


def _missing(path: str) -> MissingSourceError:
    return MissingSourceError(
        f"source {path} is not there; check the path, or say by missing_source whether to wait for it or to "
        "do without",
        source=path,
    )


def _matching(filesystem: AbstractFileSystem, inside: str, path: str) -> Iterator[SourceFile]:
    filesystem.invalidate_cache()
    if not _PATTERN.search(inside) and not _OTHER_PATTERN.search(inside):
        yield from _in(filesystem, filesystem.info(inside))
        return
    if other := _OTHER_PATTERN.search(inside):
        raise SparkNeededError(f"{other[0]!r} in the pattern {path} is Hadoop's alone")
    matches = filesystem.glob(inside, detail=True)
    if not matches:
        raise _missing(path)
    for _, match in sorted(matches.items()):
        yield from _in(filesystem, match)


def _in(filesystem: AbstractFileSystem, info: Mapping[str, Any]) -> Iterator[SourceFile]:
    """The file; for a folder, the files in it."""
    name = str(info["name"])
    if info["type"] != "directory":
        if not _is_hidden(name):
            yield SourceFile(name, int(info["size"] or 0))
        return
    if _is_hidden(name):
        raise SparkNeededError(f"folder {name} has a name of those that are left out")
    for inner in sorted(filesystem.ls(name, detail=True), key=lambda each: str(each["name"])):
        if str(inner["name"]).rstrip("/") == name.rstrip("/"):
            continue  # an object store's marker for the folder itself
        if _is_hidden(str(inner["name"])):
            continue
        if inner["type"] == "directory":
            raise SparkNeededError(f"{name} holds the folder {inner['name']}")
        yield SourceFile(str(inner["name"]), int(inner["size"] or 0))


def _is_hidden(path: str) -> bool:
    name = path.rstrip("/").rpartition("/")[2]
    if name.startswith(("_metadata", "_common_metadata")):
        raise SparkNeededError(f"{path} says the columns of the files beside it")
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)
