"""Incremental reads: the rows that commits have changed since a checkpoint (RFC-22, "Incremental reads").

Concurrent writers may complete their commits in another order than they requested them. RFC-22 names three
ways to read such commits, each with its own promise:

``completion``
    The checkpoint is a completion time, and completion times only grow. A consumer reads every commit exactly
    once, as soon as it has completed. This is RFC-22's ``END_COMMIT_TIME``.
``fenced``
    The checkpoint is a requested time, and a window ends before the first commit in flight. A consumer reads
    every commit exactly once, in the order of their requested times.
``requested``
    The checkpoint is a requested time, and a window has all commits that completed after it. The checkpoint
    stops before the first commit in flight, and a consumer reads the commits beyond it again. So it reads
    every commit at least once.

A table of version 6 keeps no completion times. ``completion`` means ``fenced`` there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import tenacity

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchInstantError,
    UnsupportedTableError,
)
from airflow_provider.table.file_groups import Effect, FileGroupId, FileSlice, FileSystemView, missing_file
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.checkpoints import (
    check_files_are_there,
    check_not_archived,
    check_not_undone,
    completion_of,
    expired,
    request_of,
    within,
)
from airflow_provider.table.reading.log_merge import SliceReader
from airflow_provider.table.reading.logged_changes import (
    WindowReader,
    slices_touched,
    without_outer_log_compactions,
)
from airflow_provider.table.reading.row_ids import ROW_ID_COLUMNS, RowIdMaker
from airflow_provider.table.reading.slices import slices_of
from airflow_provider.table.schema import TableSchema
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import (
    REWRITES,
    Action,
    CommitMetadata,
    Instant,
    State,
    TargetState,
    Timeline,
    WriteStat,
    before,
    format_time,
    has_never_changed,
    parse_time,
    without_undone,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

COMMIT_TIME = "_hoodie_commit_time"

# A writer creates a file here, named like its instant, before it puts the instant on the timeline.
_HEARTBEAT_FOLDER = ".hoodie/.heartbeat"


class Order(StrEnum):
    """The order in which a consumer reads commits; it decides what a checkpoint is. See this module."""

    COMPLETION = "completion"
    FENCED = "fenced"
    REQUESTED = "requested"


@dataclass(frozen=True)
class Increment:
    """A window of a table's commits between two checkpoints; :func:`increment` makes it.

    :param table: the table.
    :param order: the order of the read.
    :param start: the checkpoint before; None for a snapshot.
    :param end: the new checkpoint. The consumer keeps it after it has processed the rows. None when the table
        has no commit yet.
    :param timeline: the timeline at the window's end.
    :param commits: the commits of the window in the order of their completion. Clustering and other rewrites
        are among them, but add no rows.
    :param paths: the files that hold rows of these commits, relative to the table.
    :param held_by: the oldest instant in flight, when it holds back completed commits (``fenced``) or the new
        checkpoint (``requested``); None otherwise.
    :param slices: the file slices of these files, for a merge-on-read table.
    :param view: the table at the window's end, for a merge-on-read table; None for a copy-on-write one.
    """

    table: HudiTable = field(repr=False)
    order: Order
    start: str | None
    end: str | None
    timeline: Timeline = field(repr=False)
    commits: tuple[Instant, ...] = ()
    paths: tuple[str, ...] = field(default=(), repr=False)
    held_by: Instant | None = None
    slices: tuple[FileSlice, ...] = field(default=(), repr=False)
    view: FileSystemView | None = field(default=None, repr=False, compare=False)

    @cached_property
    def schema(self) -> TableSchema:
        """The schema of the rows: the table's schema at the window's end."""
        return self.table.schema_on(self.timeline)

    @property
    def commit_times(self) -> list[str] | None:
        """The values of ``_hoodie_commit_time`` that belong to this window; None for all."""
        return None if self.start is None else sorted(i.requested_time for i in self.commits)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        meta_columns: bool = False,
        row_ids: bool = False,
    ) -> ds.Scanner:
        """The rows that the commits of this window wrote, as they were at the window's end.

        A row that several commits wrote comes once. Rows that were deleted, or that a commit beyond the
        window's end wrote again, are left out.

        :param columns: the columns to read; all when None.
        :param filter: keeps the rows for which it is true; an expression over any columns.
        :param meta_columns: whether Hudi's five meta columns are among all columns.
        :param row_ids: whether there are the virtual columns ``row_id`` and ``current_write_id``; see
            :func:`~airflow_provider.table.reading.snapshot`, whose errors of row ids are raised here too.
        :return: a pyarrow scanner: ``to_table()``, ``to_batches()``, ``count_rows()`` ...
        """
        import pyarrow.dataset as ds  # it imports pandas

        inside = None
        if (times := self.commit_times) is not None:
            inside = ds.field(COMMIT_TIME).isin(pa.array(times, pa.string()))
        if row_ids:
            from airflow_provider.table.reading.rows_with_ids import RowsWithIds

            rows, virtual = self._rows(inside), ROW_ID_COLUMNS.names
            rows = RowsWithIds(rows, RowIdMaker.of(self.table, rows.schema.names), rows.schema.names, filter)
        else:
            both = inside if filter is None else filter if inside is None else inside & filter
            rows, virtual = self._rows(both), []
        if columns is None:
            columns = rows.schema.names if meta_columns else [*self.schema.columns.names, *virtual]
        return rows.scanner(columns=list(columns))

    @cached_property
    def reader(self) -> SliceReader | None:
        """Reads the window's file slices; None for a copy-on-write table, whose rows are in base files.

        :raises UnsupportedTableError: when the table merges versions in an unknown way.
        """
        if self.view is None:
            return None
        whole = replace(SliceReader.of(self.table, self.view), schema=self.schema)
        if (times := self.commit_times) is None:
            return whole
        partitions = sorted({each.partition_path for each in self.slices})
        by_group = {each.file_group: each for each in slices_of(self.table, self.view, partitions)}
        window = replace(whole, shown=frozenset(times))
        return WindowReader(**vars(window), whole=whole, slices=by_group)

    def _rows(self, filter: pc.Expression | None) -> ds.Dataset:
        from airflow_provider.table.reading.merged_rows import MergedRows
        from airflow_provider.table.reading.rows import rows_of

        if self.reader is not None:
            return MergedRows(self.reader, self.slices, meta_columns=True, filter=filter)
        return rows_of(
            self.table.storage,
            self.paths,
            self.schema,
            meta_columns=True,
            has_never_changed=has_never_changed(self.schema, self.table.config),
            where=filter,
        )


# A commit can be reverted or archived after the timeline was listed. The next listing tells.
_looking_again = tenacity.retry(
    retry=tenacity.retry_if_exception_type(NoSuchInstantError),
    stop=tenacity.stop_after_attempt(5),
    reraise=True,
)


@_looking_again
def increment(
    table: HudiTable,
    start: str | None = None,
    *,
    order: Order | str = Order.COMPLETION,
    end: str | None = None,
) -> Increment:
    """Find the commits of a table since a checkpoint, and the files with their rows.

    The function lists the timeline twice and reads the metadata of the window's commits. It opens no data
    file and writes nothing.

    :param table: the table.
    :param start: the checkpoint: the ``end`` of the increment before; not part of the window.
        None starts with a snapshot: every row of the table.
    :param order: ``completion``, ``fenced`` or ``requested``; see :class:`Order`. A checkpoint
        belongs to one order.
    :param end: the last checkpoint of the window, to read a window again or a long one in parts; not with
        ``requested``, whose windows overlap. It may be later than all completed commits; the consumer keeps
        the increment's own ``end``, which says how far the window goes.
    :raises InvalidInputError: when a checkpoint is not an instant time, or the order is unknown.
    :raises CheckpointExpiredError: when commits of the window were archived, files that it needs were
        cleaned, or a restore has undone commits up to the checkpoint.
    :raises UnsupportedTableError: for a table whose rows do not say which commit wrote them, and for a
        merge-on-read table that merges versions in an unknown way.
    """
    order = _order(order)
    if not table.config.has_meta_columns:
        raise UnsupportedTableError(
            f"table {table.location} has hoodie.populate.meta.fields=false: its rows do not say which commit "
            "wrote them, so that nobody can tell what changed; read its snapshot",
            location=table.location,
            property="hoodie.populate.meta.fields",
        )
    if order is Order.COMPLETION and table.config.layout == 1:
        order = Order.FENCED
    start, end = _checkpoint(start, "start"), _checkpoint(end, "end")
    if end is not None and order is Order.REQUESTED:
        raise InvalidInputError("end: windows in requested order have no end; leave it out", end=end)
    moment = _Moment.of(table)
    if order is Order.COMPLETION:
        commits = [i for i in moment.completed if within(completion_of(i), start, end)]
        upto = completion_of(commits[-1]) if commits else start
        shown = [i for i in moment.completed if upto is not None and completion_of(i) <= upto]
    else:
        upto = moment.fence(start, end)
        shown = list(moment.completed)
        if order is Order.FENCED:
            shown = [i for i in shown if upto is not None and i.requested_time <= upto]
        commits = [i for i in shown if within(i.requested_time, start, None)]
    by_completion = order is Order.COMPLETION
    check_not_archived(table, start, end, moment.timeline, by_completion=by_completion)
    check_not_undone(table, start, moment.timeline, by_completion=by_completion)
    left_out = frozenset(moment.timeline.commits()).difference(shown)
    held_by = None
    if order is not Order.COMPLETION and moment.in_flight and moment.withholds(upto, end):
        held_by = moment.in_flight[0]
    if table.is_merge_on_read:
        view = moment.view(table, left_out)
        written = None
        if start is not None:
            commits = without_outer_log_compactions(commits, moment.metadata)
            written = {i.requested_time: moment.metadata(i) for i in commits}
        slices = slices_touched(table, view, written)
        if left_out and (found := missing_file(table.storage, view, moment.timeline)):
            raise expired(table, start, f"file {found[0]} was cleaned")
        paths = [path for each in slices for path in each.paths]
        window = (start, upto, moment.timeline, tuple(commits), tuple(paths), held_by, slices, view)
        return Increment(table, order, *window)
    if start is None:
        paths = _snapshot_paths(table, moment, commits, left_out)
    else:
        paths = _touched_paths(commits, moment.metadata)
        if left_out:  # otherwise no file of the window is superseded, and a clean deletes only such files
            check_files_are_there(table, start, paths)
    return Increment(table, order, start, upto, moment.timeline, tuple(commits), tuple(paths), held_by)


@_looking_again
def movable_checkpoint(table: HudiTable, start: str | None = None) -> str | None:
    """The time to which a consumer that reads in requested order may move its checkpoint.

    This is RFC-22's timeline API for option 1. No instant up to the returned time is in flight, so no commit
    can appear there any more. It is the ``end`` of ``increment(order="requested")`` at this moment. The
    consumer reads the commits beyond it again.

    :param table: the table.
    :param start: the checkpoint so far.
    :return: a requested time; ``start`` when the checkpoint may not move.
    :raises InvalidInputError: when the checkpoint is not an instant time.
    """
    return _Moment.of(table).fence(_checkpoint(start, "start"), None)


@dataclass(frozen=True)
class _Moment:
    """The completed commits and the writes in flight at one moment.

    :param timeline: the timeline.
    :param completed: commits in the order of their completion, without a gap.
    :param in_flight: writes that may still complete, in the order of their requested times.
    :param metadata: reads a commit's metadata, once.
    """

    timeline: Timeline
    completed: tuple[Instant, ...]
    in_flight: tuple[Instant, ...]
    metadata: Callable[[Instant], CommitMetadata]

    @classmethod
    def of(cls, table: HudiTable) -> _Moment:
        """Look at a table.

        A listing that runs while files are created may show a later file and miss an earlier one. So a commit
        counts as completed when a first listing has shown it. The second listing shows all these commits, and
        every write that was requested before them. A commit that a restore is undoing counts as in flight,
        because a restore takes one commit away after the other. A commit that comes late to the target of a
        replication counts as in flight, too.
        """
        newest = max(map(completion_of, table.timeline().commits()), default="")
        # The state is read after the timeline: a replication announces a late commit before it shows a later
        # one.
        target = TargetState.read(table.storage)
        if target is not None and target.late:
            newest = min(newest, before(target.late))
        heartbeats = [name for name in table.storage.names(_HEARTBEAT_FOLDER) if name.isdigit()]
        timeline = without_undone(table.timeline())
        commits = timeline.commits()
        in_flight = [i for i in timeline.pending() if i.action.holds_fence]
        in_flight += [i for i in commits if completion_of(i) > newest]
        # An instant exists once it has a heartbeat. An instant that is older than the timeline has ended.
        first = min((i.requested_time for i in timeline.instants), default="")
        in_flight += [
            Instant(name, action, State.REQUESTED)
            for name in heartbeats
            if name > first
            and timeline.find(name) is None
            and (action := _action_begun(table.storage, name)).holds_fence
        ]
        if target is not None and target.open:
            in_flight.append(Instant(target.open, Action.COMMIT, State.REQUESTED))
        return cls(
            timeline,
            tuple(i for i in commits if completion_of(i) <= newest),
            tuple(sorted(in_flight, key=request_of)),
            cache(timeline.commit_metadata),
        )

    def view(self, table: HudiTable, left_out: frozenset[Instant]) -> FileSystemView:
        """The file slices without those of some commits."""
        shown = self.timeline.showing(lambda i: i not in left_out)
        return FileSystemView(table.storage, shown, check=table.check_standing)

    def fence(self, start: str | None, end: str | None) -> str | None:
        """The last requested time up to which all writes have ended and depend on no later one.

        A commit can build on a commit with a later requested time: a rebase replaces that commit's file
        groups, or writes a key again that it had deleted. A window has both commits or neither.
        """
        first = self.in_flight[0].requested_time if self.in_flight else None
        ready = [
            instant
            for instant in sorted(self.completed, key=request_of)
            if within(instant.requested_time, start, end)
            and (first is None or instant.requested_time < first)
        ]
        while ready:
            last = ready[-1].requested_time
            beyond = [instant for instant in self.completed if instant.requested_time > last]
            resting = next((i for i in ready if any(self._rests_on(i, later) for later in beyond)), None)
            if resting is None:
                return last
            ready = ready[: ready.index(resting)]
        return start

    def withholds(self, upto: str | None, end: str | None) -> bool:
        """Whether a completed commit was requested after a time, and not after the end."""
        return any(within(instant.requested_time, upto, end) for instant in self.completed)

    def _rests_on(self, instant: Instant, later: Instant) -> bool:
        if completion_of(later) > completion_of(instant):
            return False
        this, other = (Effect.of(each, self.metadata(each)) for each in (instant, later))
        return not this.replaced.isdisjoint(other.written) or this.wrote_where_was_taken_out(other)


def _touched_paths(
    commits: Iterable[Instant],
    metadata: Callable[[Instant], CommitMetadata],
    *,
    only_with_rows: bool = True,
) -> list[str]:
    """The base files that hold rows of some commits, after the last of them.

    This needs no listing and no other commit, because any commit that replaced or rewrote one of their file
    groups is also among them.

    :param only_with_rows: leave out files without a row that these commits wrote.
    """
    newest: dict[FileGroupId, tuple[str, str]] = {}
    for instant in commits:
        described = metadata(instant)
        replaced = described.replaced_groups
        # The rows of a replaced file group can move only to new file groups of its partition.
        carried_over = {group.partition_path for group in replaced & newest.keys()}
        for group in replaced:
            newest.pop(group, None)
        for stat in described.write_stats:
            group = stat.file_group
            known = group in newest or group.partition_path in carried_over or not only_with_rows
            if known or _adds_rows(described, stat):
                newest[group] = max(newest.get(group, ("", "")), (instant.requested_time, stat.path))
    return sorted(path for _, path in newest.values())


def _snapshot_paths(
    table: HudiTable, moment: _Moment, commits: Sequence[Instant], left_out: frozenset[Instant]
) -> list[str]:
    """The base files that show exactly these commits, and the archived ones before them."""
    if not commits:
        return []
    base_files = moment.view(table, left_out).all_base_files()
    paths = {base_file.path for base_file in base_files}
    if left_out:
        # A clean may have deleted files that the left out commits superseded. A listing does not tell.
        wanted = _touched_paths(commits, moment.metadata, only_with_rows=False)
        if gone := sorted(set(wanted) - paths):
            raise expired(table, None, f"base file {gone[0]} of its snapshot was cleaned")
        there = {base_file.file_group for base_file in base_files}
        for instant in moment.timeline.commits():
            if instant not in left_out:
                continue
            described = moment.metadata(instant)
            rewritten = {s.file_group for s in described.write_stats if s.prev_commit != "null"}
            if lost := sorted((rewritten | described.replaced_groups) - there):
                name = f"{lost[0].partition_path}/{lost[0].file_id}".lstrip("/")
                raise expired(table, None, f"file group {name} of its snapshot was cleaned")
            there.update(stat.file_group for stat in described.write_stats)
    return sorted(paths)


def _adds_rows(described: CommitMetadata, stat: WriteStat) -> bool:
    if described.operation_type.upper() in REWRITES:
        return False
    only_deletes = stat.num_deletes > 0 and stat.num_inserts == stat.num_update_writes == 0
    return not only_deletes


def _action_begun(storage: Storage, instant: str) -> Action:
    """The action in the heartbeat of an instant that is not on the timeline yet; a commit by default."""
    try:
        action = json.loads(storage.read(f"{_HEARTBEAT_FOLDER}/{instant}"))["action"]
    except (FileNotFoundError, ValueError, KeyError):  # the write has just ended, or the file is the JVM's
        return Action.COMMIT
    return Action(action) if action in set(Action) else Action.COMMIT


def _order(order: Order | str) -> Order:
    try:
        return Order(order)
    except ValueError:
        known = ", ".join(Order)
        raise InvalidInputError(f"order {order!r} is unknown; known: {known}", order=str(order)) from None


def _checkpoint(text: str | None, name: str) -> str | None:
    if text is None:
        return None
    try:
        return format_time(parse_time(text))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{name}: {error}; give the 'end' of an increment", checkpoint=text
        ) from error
