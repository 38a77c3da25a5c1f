"""The replication of one Hudi table: it copies the commits that a reader of the source sees, with their
files.

If the target lacks the table, its files, its archived timeline and its timeline are copied, without the
commits that the reader does not see. If the target has the table, each missing commit is replayed by itself,
through the commit protocol of the target's table. Both ways may be killed at any step; the next call finds
the finished steps.

Clustering and other rewrites are commits like any other. Cleans, archival, compactions of the metadata table
and index builds are the target's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from airflow_provider.concurrency import CommitLog
from airflow_provider.concurrency.commit import is_there, publish_head, replay_commit, undo_replayed
from airflow_provider.concurrency.readers import WEEK, reader_lease, register_consumer
from airflow_provider.concurrency.undo import ensure_commit_before
from airflow_provider.exceptions import NoSuchInstantError, NotATableError, ReplicationError
from airflow_provider.indexing import drop_index, pending_indexings, run_index, schedule_index
from airflow_provider.replication.copying import Copier
from airflow_provider.table.bucket_index import ConsistentBucketIndex, hashing_metadata_folder
from airflow_provider.table.file_groups import Effect, ValidWriteIds, effect_of, hidden_effects
from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files import LogFileName
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table import read_index_definitions
from airflow_provider.table.properties import PROPERTIES_PATH, dump_properties
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    COMMIT_METADATA,
    HISTORY_FOLDER,
    REPLACE_COMMIT_METADATA,
    UNDOING,
    VERSION_PATH,
    Action,
    Instant,
    Manifest,
    TargetState,
    Timeline,
    archived_commits,
    before,
    decode_any,
    decode_commit_metadata,
    encode,
    find_archived,
    instant_path,
    manifest_path,
    newest_archived,
    read_completed,
)

log = logging.getLogger(__name__)

_SCHEMA_FOLDER = ".hoodie/.schema"
_HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
_PARTITION_METADATA = ".hoodie_partition_metadata"
_COPIED_AS_THEY_ARE = frozenset({Action.CLEAN, Action.SAVEPOINT, *UNDOING})
_PER_TARGET = ("hoodie.table.metadata.partitions", "hoodie.table.index.defs.path")


@dataclass
class TableReplication:
    """Copies one table to the target.

    :param source: the table's storage at the source.
    :param target: the table's storage at the target.
    :param policy: the name under which the replication registers with both tables, so that their cleans and
        archivals wait for it.
    :param copier: copies files.
    :param target_txn: returns the target's transaction for a transaction of the source, if there is one.
    :param step: called with a name before each step; an error that it raises stops the replication.
    :param patience: seconds since its last registration after which the tables no longer wait for the
        replication.
    """

    source: Storage
    target: Storage
    policy: str
    copier: Copier
    target_txn: Callable[[int], int | None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    patience: float = WEEK
    replayed: list[str] = field(default_factory=list)

    def run(self, valid_write_ids: ValidWriteIds) -> None:
        """Copy all commits that a reader with these write ids sees.

        :param valid_write_ids: the source's valid write ids at the moment that the target is to show.
        :raises NotATableError: when the source is no Hudi table.
        :raises UnsupportedTableError: when this package does not write such a table.
        :raises ReplicationError: when a file is missing, or the source has undone a commit of the target.
        """
        source = HudiTable.at(self.source)
        source.check_writable(keeps_indexes=False)
        publish_head(self.source, CommitLog(self.source))
        self._drop_a_namesake(source)
        if self.target.stat(PROPERTIES_PATH) is None:
            with reader_lease(source) as lease:
                done = self._copy_table(source, valid_write_ids)
                lease.check()
        else:
            done = self._replay(source, valid_write_ids)
        self._register(source, done)
        self._follow_indexes(source)

    def _drop_a_namesake(self, source: HudiTable) -> None:
        """Delete the copy of a dropped table if the source has another table in its folder now."""
        known = TargetState.read(self.target)
        if known is None or known.source != self.source.root or self.target.stat(PROPERTIES_PATH) is None:
            return
        here = HudiTable.at(self.target)
        if _identity(here) != _identity(source):
            log.warning("%s is another table than was copied to %s: it is copied anew", source, here)
            self.step("drop a namesake")
            self.target.delete_folder("")

    # --- a table that the target has --------------------------------------------------------

    def _replay(self, source: HudiTable, valid: ValidWriteIds) -> TargetState:
        target = HudiTable.at(self.target)
        publish_head(self.target, CommitLog(self.target))
        timeline = source.timeline()
        commits, hidden = self._seen(timeline, valid)
        here = target.timeline()
        before_it = TargetState.read(self.target)
        if before_it is None or before_it.source != self.source.root:
            of = "of no other one" if before_it is None else f"of {before_it.source}"
            raise ReplicationError(
                f"{self.target.root} holds a table that is a copy {of}, not of {self.source.root}: nothing "
                "was touched; move it away, or let the policy's locations lead elsewhere",
                location=self.target.root,
            )
        done = self._state_of(timeline, hidden)
        replace(done, floor=before_it.floor, archived=before_it.archived).write(self.target)
        self._undo(timeline, here)
        for instant in [*self._archived_since(before_it), *commits]:
            if not is_there(self.target, here, instant):
                self._bring(timeline, instant)
        return done

    def _seen(self, timeline: Timeline, valid: ValidWriteIds) -> tuple[list[Instant], list[Effect]]:
        """The commits of the source that a reader sees, in the order of their completion, and the hidden
        ones.

        The reader sees a rewrite only if it sees every commit that was rewritten.
        """
        effects: list[Effect] = []
        for commit in timeline.commits():
            with suppress(NoSuchInstantError):  # just undone
                effects.append(effect_of(self.source, timeline, commit))
        hidden = hidden_effects(effects, valid)
        unseen = {each.instant for each in hidden}
        return [each.instant for each in effects if each.instant not in unseen], hidden

    def _archived_since(self, known: TargetState) -> Iterator[Instant]:
        """The commits that the source archived before they were copied, because its archival did not wait."""
        if newest_archived(self.source) <= known.archived:
            return
        found = archived_commits(self.source, completed_after=known.floor)
        yield from sorted(found, key=lambda each: each.completion_time or "")

    def _undo(self, timeline: Timeline, here: Timeline) -> None:
        """Undo the commits that the source has undone: a rewrite, or those that a restore has undone."""
        for instant in reversed(here.commits()):
            gone = timeline.find(instant.requested_time) is None
            if not gone or find_archived(self.source, instant.requested_time) is not None:
                continue
            if Timeline.load(self.source).find(instant.requested_time) is not None:
                continue  # another process has published it since
            metadata = here.commit_metadata(instant)
            if not metadata.write_stats and not metadata.replaced:
                continue  # an empty commit, which _bring has put to hide files that come late
            self.step(f"undo {instant.requested_time}")
            self._copy_back(effect_of(self.target, here, instant))
            undo_replayed(self.target, instant.requested_time)

    def _copy_back(self, undone: Effect) -> None:
        """Copy the files that an undo makes visible again and that a clean of the target has deleted."""
        view = HudiTable.at(self.source).view()
        groups = undone.merged_on | undone.replaced | undone.written
        shown = [
            each
            for partition in sorted({group.partition_path for group in groups})
            for each in (*view.base_files(partition), *view.log_files(partition))
        ]
        self._copy((each.path, each.size) for each in shown if each.file_group in groups)

    def _bring(self, timeline: Timeline, instant: Instant) -> None:
        try:
            content = read_completed(self.source, timeline, instant)
        except NoSuchInstantError:
            return  # just undone
        metadata = decode_commit_metadata(content)
        files = [(stat.path, stat.file_size or None) for stat in metadata.write_stats if stat.path]
        for stat in metadata.write_stats:
            folder = f"{stat.partition_path}/".lstrip("/")
            files += [(f"{folder}{name}", None) for name in stat.log_files or ()]
        partitions = {stat.partition_path for stat in metadata.write_stats}
        if instant.requested_time < Timeline.load(self.target).starts:
            # Without an earlier commit, readers would take its files for those of an archived commit, and see
            # them while they are copied.
            self.step("put a commit before")
            ensure_commit_before(self.target, instant.requested_time)
        buckets = self._hashing_metadata({*partitions, *metadata.replaced})
        self._copy([*files, *self._partition_metadata(partitions), *buckets])
        self._copy_schemas()
        self.step(f"replay {instant.requested_time}")
        self.target.sync_later(sorted(path for path, _ in files))
        if replay_commit(self.target, self.source, instant, self._as_of_target(content)) is not None:
            self.replayed.append(instant.requested_time)

    def _as_of_target(self, content: bytes) -> bytes:
        """A commit's metadata with the target's transaction, or with none if that has ended."""
        record = decode_any(content)
        extra = dict(record.get("extraMetadata") or {})
        if "txn_id" not in extra:
            return content
        txn_id = self.target_txn(int(extra.pop("txn_id")))
        if txn_id is not None:
            extra["txn_id"] = str(txn_id)
        is_replace = "partitionToReplaceFileIds" in record
        schema = REPLACE_COMMIT_METADATA if is_replace else COMMIT_METADATA
        return encode(schema, {**record, "extraMetadata": extra})

    # --- a table that the target lacks --------------------------------------------------------

    def _copy_table(self, source: HudiTable, valid: ValidWriteIds) -> TargetState:
        timeline = source.timeline()
        commits, hidden = self._seen(timeline, valid)
        shown = {each.requested_time for each in commits}
        known = {each.requested_time for each in timeline.instants}
        starts = timeline.starts

        def is_wanted(path: str) -> bool:
            name = path.rpartition("/")[2]
            if path.startswith(".hoodie/"):
                return False
            if name == _PARTITION_METADATA:
                return True
            parsed, logged = parse_base_file_name(name), LogFileName.parse(name)
            instant = parsed[2] if parsed else logged.instant if logged else None
            if instant is None:
                return False
            return instant in shown or (instant not in known and instant < starts)

        files = {each.path: each.size for each in self.source.list("", recursive=True)}
        wanted = {path: size for path, size in files.items() if is_wanted(path)}
        self._drop_all_but(wanted)
        self._copy(wanted.items())
        self._copy_history()
        self._copy_schemas()
        self._copy(self._hashing_metadata(source.view().all_partitions()))
        for instant in timeline.completed():
            if instant.requested_time in shown and instant in commits:
                content = self._as_of_target(read_completed(self.source, timeline, instant))
            elif instant.action in _COPIED_AS_THEY_ARE:
                content = read_completed(self.source, timeline, instant)
            else:
                continue
            self.target.put(instant_path(instant), content)
        self.step("create the table")
        done = self._state_of(timeline, hidden)
        done.write(self.target)
        properties = {
            key: value
            for key, value in source.config.to_properties().items()
            if not key.startswith(_PER_TARGET)
        }
        self.target.put_if_absent(PROPERTIES_PATH, dump_properties(properties).encode())
        self.target.sync()
        log.info("%s: %d files of %s", self.target.root, len(wanted), self.source.root)
        return done

    def _drop_all_but(self, wanted: dict[str, int]) -> None:
        """Delete files of an earlier bootstrap that the source does not have any more.

        If another replicator copies a later state of the source at the same time, the source still has the
        files that it copies.
        """
        for each in self.target.list("", recursive=True):
            # Only files that Hudi writes are deleted, because the replication has not put any other file.
            is_data = bool(parse_base_file_name(each.name) or LogFileName.parse(each.name))
            if is_data and each.path not in wanted and self.source.stat(each.path) is None:
                self.target.delete(each.path)
        now = Timeline.load(self.source)
        for instant in Timeline.load(self.target).instants:
            time = instant.requested_time
            if now.find(time) is None and find_archived(self.source, time) is None:
                self.target.delete(instant_path(instant))

    def _copy_history(self) -> None:
        """Copy the archived timeline: the files that a manifest names, and then the manifest."""
        while manifest := Manifest.newest(self.source):
            if not manifest.version:
                return
            try:
                self._copy((f"{HISTORY_FOLDER}/{each.name}", each.size) for each in manifest.files)
            except ReplicationError:
                if Manifest.newest(self.source).version == manifest.version:
                    raise
                continue  # the source has merged the files meanwhile
            self.target.put(manifest_path(manifest.version), manifest.to_json())
            self.target.put(VERSION_PATH, str(manifest.version).encode())
            return

    # --- both kinds of tables -------------------------------------------------------------------

    def _copy(self, files: Iterable[tuple[str, int | None]]) -> None:
        self.copier.copy(self.source, self.target, files)

    def _copy_schemas(self) -> None:
        names = self.source.names(_SCHEMA_FOLDER)
        self._copy((f"{_SCHEMA_FOLDER}/{name}", None) for name in names if name.endswith(".schemacommit"))

    def _partition_metadata(self, partitions: Iterable[str]) -> Iterator[tuple[str, None]]:
        for partition in sorted(partitions):
            path = f"{partition}/{_PARTITION_METADATA}".lstrip("/")
            if self.target.stat(path) is None and self.source.stat(path) is not None:
                yield path, None

    def _hashing_metadata(self, partitions: Iterable[str]) -> Iterator[tuple[str, None]]:
        """The hashing metadata of partitions, for the target's writes after a failover."""
        if self._has_hashing_metadata:
            for partition in sorted(partitions):
                folder = hashing_metadata_folder(partition)
                yield from ((f"{folder}/{name}", None) for name in self.source.names(folder))

    @cached_property
    def _has_hashing_metadata(self) -> bool:
        return isinstance(HudiTable.at(self.source).bucket_index, ConsistentBucketIndex)

    def _register(self, source: HudiTable, done: TargetState) -> None:
        """Register the replication's position with both tables, so that they keep all later commits.

        The source keeps them until they are copied. The target keeps them so that a late commit can take its
        place on the timeline.
        """
        if not done.floor:
            return
        for table in (source, HudiTable.at(self.target)):
            register_consumer(table, f"replication-{self.policy}", done.floor, expires_after=self.patience)
        done.write(self.target)

    def _state_of(self, timeline: Timeline, hidden: Sequence[Effect]) -> TargetState:
        """The state of a target that has all commits that a reader of this timeline sees."""
        pending = timeline.pending()
        open_ones = [each.instant.requested_time for each in hidden]
        open_ones += [each.requested_time for each in pending if each.action.holds_fence]
        # An instant has a heartbeat before it is on the timeline.
        begun = [name for name in self.source.names(_HEARTBEAT_FOLDER) if timeline.find(name) is None]
        open_ones += [name for name in begun if name.isdigit() and name > timeline.starts]
        unfinished = [*open_ones, *(each.requested_time for each in pending)]
        newest = timeline.newest_completion
        return TargetState(
            self.source.root,
            floor=min(newest, before(min(unfinished))) if unfinished and newest else newest,
            archived=newest_archived(self.source),
            late=min((each.instant.completion_time or "" for each in hidden), default=""),
            open=min(open_ones, default=""),
        )

    def _follow_indexes(self, source: HudiTable) -> None:
        """Build the indexes that the source has, and drop those that it does not have any more."""
        target = HudiTable.at(self.target)
        wanted, there = {*source.config.metadata_partitions}, {*target.config.metadata_partitions}
        if wanted == there:
            return
        if not wanted:
            self.step("drop the indexes")
            drop_index(target, ["files"])
            return
        if extra := there - wanted:
            self.step("drop indexes")
            drop_index(target, sorted(extra))
        if missing := wanted - there:
            self.step("plan indexes")
            definition = read_index_definitions(self.source).get("column_stats")
            columns = (
                [each for each in definition.source_fields if each not in META_COLUMNS]
                if definition
                else None
            )
            schedule_index(target, sorted(missing), columns if "column_stats" in missing else None)
            for plan in pending_indexings(target, idle=True):
                self.step("build indexes")
                run_index(target, plan)


def _identity(table: HudiTable) -> tuple[Any, ...]:
    """The properties that a table never changes."""
    config = table.config
    return (config.record_key_fields, config.partition_fields, config.hive_style, config.url_encode)


def is_hudi_table(storage: Storage) -> bool:
    """Whether a storage has a Hudi table."""
    try:
        HudiTable.at(storage)
    except NotATableError:
        return False
    return True
