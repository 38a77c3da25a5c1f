"""The base files with which an index begins: staged when they are written, visible when the index is
complete.

They carry the time of an unused initial instant of the metadata table (see
:mod:`~airflow_provider.table.metadata_table.initial_instants`), so no reader counts them before this instant
completes. The publication of the index's completion begins with it. Until then, another Hudi writer that
begins a partition of its own may take that instant; then the base files are written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from airflow_provider.concurrency.log import LogEntry
from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.metadata_table import (
    BULK_INSERT,
    METADATA_FOLDER,
    is_initial,
    metadata_storage,
    schema_text,
)
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    Action,
    CommitMetadata,
    Instant,
    State,
    Timeline,
    WriteStat,
    decode_commit_metadata,
    encode_commit_metadata,
    instant_path,
)

_STAGED_FOLDER = ".hoodie/commit_log/staged"
_SUFFIX = ".initial.avro"

_INDEXING = "indexing"
"""Key in the extra metadata of an initial instant: the requested time of its indexing plan."""


class BaseFiles(NamedTuple):
    """The base files of an index that is being built.

    :param plan: requested time of the indexing plan.
    :param partition: the metadata partition.
    :param initial: requested time of the instant of the metadata table under which they are written.
    """

    plan: str
    partition: str
    initial: str

    @property
    def path(self) -> str:
        """Where the completed instant of the metadata table is staged."""
        return f"{_STAGED_FOLDER}/{self.plan}.{self.partition}.{self.initial}{_SUFFIX}"


def stage_base_files(storage: Storage, base_files: BaseFiles, stats: Collection[WriteStat]) -> None:
    """Record that all base files of an index are written.

    :param storage: the table's storage.
    :param base_files: the base files.
    :param stats: the statistics of each file.
    """
    storage.put(base_files.path, _content(base_files.plan, stats))


def staged_base_files(storage: Storage, plan: str) -> list[BaseFiles]:
    """The base files of a plan that are written, and not visible yet.

    :param storage: the table's storage.
    :param plan: requested time of the indexing plan.
    """
    return sorted(each for each in _staged(storage) if each.plan == plan)


def drop_base_files(storage: Storage, partitions: Collection[str], until: str) -> None:
    """Delete the records of base files that are not visible yet, because their indexes are dropped.

    :param storage: the table's storage.
    :param partitions: the partitions that are dropped.
    :param until: time of the drop; the base files of a later plan stay.
    """
    for each in _staged(storage):
        if each.partition in partitions and each.plan <= until:
            storage.delete(each.path)


def _staged(storage: Storage) -> Iterator[BaseFiles]:
    for name in storage.names(_STAGED_FOLDER):
        if name.endswith(_SUFFIX):
            yield BaseFiles(*name.removesuffix(_SUFFIX).split("."))


def are_there(storage: Storage, base_files: BaseFiles) -> bool:
    """Whether base files can become visible: their instant is not taken, and all files are there.

    :param storage: the table's storage.
    :param base_files: staged base files.
    """
    metadata_table = metadata_storage(storage)
    taken = Timeline.load(metadata_table, archived_too=True).find(base_files.initial)
    if taken is not None and not _is_of(metadata_table, taken, base_files.plan):
        return False
    try:
        stats = decode_commit_metadata(storage.read(base_files.path)).write_stats
    except (FileNotFoundError, CorruptTableError):  # a power failure leaves a part of a staged file
        return False
    there = set(metadata_table.names(base_files.partition))
    return all(stat.path.rpartition("/")[2] in there for stat in stats)


def complete_base_files(storage: Storage, entry: LogEntry, partitions: Iterable[str]) -> set[str]:
    """Make the base files of a plan visible. A second call changes nothing.

    :param storage: the table's storage.
    :param entry: the entry of the commit log that completes the plan.
    :param partitions: the partitions that the plan makes.
    :return: the partitions whose base files are visible; the others have to be built again.
    """
    metadata_table = metadata_storage(storage)
    for each in staged_base_files(storage, entry.instant):
        if each.partition not in partitions or not are_there(storage, each):
            storage.delete(each.path)
        elif _takes(metadata_table, each):
            done = Instant(each.initial, Action.DELTA_COMMIT, State.COMPLETED, entry.completion_time)
            with suppress(FileNotFoundError):  # another publisher has moved it
                storage.move_if_absent(each.path, f"{METADATA_FOLDER}/{instant_path(done)}")
    found = initial_base_files(storage, entry.instant)
    return {stat.partition_path for stat in found}.intersection(partitions)


def initial_base_files(storage: Storage, plan: str) -> list[WriteStat]:
    """The visible base files of a plan, until the metadata table archives their instants.

    :param storage: the table's storage.
    :param plan: requested time of the indexing plan.
    """
    timeline = Timeline.load(metadata_storage(storage))
    found: list[WriteStat] = []
    for instant in timeline.commits():
        if is_initial(instant.requested_time):
            metadata = timeline.commit_metadata(instant)
            if metadata.extra_metadata.get(_INDEXING) == plan:
                found += metadata.write_stats
    return found


def _takes(metadata_table: Storage, base_files: BaseFiles) -> bool:
    """Put the instant on the metadata table's timeline; False where another writer has taken it."""
    requested, inflight = (
        Instant(base_files.initial, Action.DELTA_COMMIT, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    content = _content(base_files.plan, ())
    if not metadata_table.put_if_absent(instant_path(requested), content) and not _is_of(
        metadata_table, requested, base_files.plan
    ):
        return False
    metadata_table.put_if_absent(instant_path(inflight), content)
    return True


def _is_of(metadata_table: Storage, instant: Instant, plan: str) -> bool:
    try:
        content = metadata_table.read(instant_path(instant))
        return decode_commit_metadata(content).extra_metadata.get(_INDEXING) == plan
    except (FileNotFoundError, CorruptTableError):
        return False  # Hudi's own pending instants are empty


def _content(plan: str, stats: Collection[WriteStat]) -> bytes:
    extra = {"schema": schema_text(), _INDEXING: plan}
    return encode_commit_metadata(
        CommitMetadata(BULK_INSERT, tuple(stats), extra_metadata=extra), Action.DELTA_COMMIT
    )
