"""The active timeline of a table: ``.hoodie/timeline``, or in layout 1 ``.hoodie`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import NoSuchInstantError
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Action, Instant, State, parse_time
from airflow_provider.table.timeline.metadata import CommitMetadata, decode, decode_commit_metadata

TIMELINE_FOLDER = ".hoodie/timeline"

_ORDER = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def timeline_folder(layout: int) -> str:
    """The folder of the instants' files, relative to the table.

    :param layout: timeline layout version.
    """
    return TIMELINE_FOLDER if layout == 2 else ".hoodie"


def instant_path(instant: Instant) -> str:
    """The path of an instant's file, relative to the table."""
    return f"{timeline_folder(instant.layout)}/{instant.file_name}"


class Timeline:
    """The instants of a table at the moment of loading; it does not change afterwards.

    :param storage: the table's storage.
    :param instants: every instant, each in the furthest state that it has reached.
    :param starts: see :attr:`starts`; found among the instants when None.
    """

    def __init__(self, storage: Storage, instants: Iterable[Instant], starts: str | None = None) -> None:
        self._storage = storage
        self._by_time: Mapping[str, Instant] = {_key(each): each for each in instants}
        self._newest_completion: str | None = None
        self._starts = starts
        self._layout = 2

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        """Every instant, in the order of requested times."""
        return tuple([self._by_time[key] for key in sorted(self._by_time)])

    @classmethod
    def load(cls, storage: Storage, layout: int = 2, *, archived_too: bool = False) -> Timeline:
        """Read the timeline folder: one listing, no file is opened.

        File names that an earlier listing through the same storage object showed are not parsed again.

        On a storage that cannot move a file in one step, a paused writer may put an instant's file after the
        instant was archived. There, instants that the archived timeline has are left out.

        :param storage: the table's storage.
        :param layout: timeline layout version.
        :param archived_too: whether to show archived instants whose files still exist; archival deletes them.
        """
        leaves_out = layout == 2 and not archived_too and not storage.moves_atomically
        names = _active(storage) if leaves_out else frozenset(_listed(storage, timeline_folder(layout)))
        listing = _Listing.of(storage, layout, names)
        timeline = cls(storage, ())
        timeline._layout = layout
        timeline._by_time, timeline._newest_completion = listing.furthest, listing.newest_completion
        timeline.__dict__["_names"] = listing.names
        timeline.__dict__["_pending"] = tuple(listing.pending.values())
        return timeline

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(instant.file_name for instant in self._by_time.values())

    def completed(self) -> tuple[Instant, ...]:
        """Completed instants in the order of their completion."""
        return self._completed

    @cached_property
    def _completed(self) -> tuple[Instant, ...]:
        done = [instant for instant in self.instants if instant.state is State.COMPLETED]
        return tuple(sorted(done, key=_completion))

    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that changed the table's files, in the order of completion."""
        return self._commits

    @cached_property
    def _commits(self) -> tuple[Instant, ...]:
        return tuple([instant for instant in self.completed() if instant.action in WRITE_ACTIONS])

    def savepoints(self) -> tuple[Instant, ...]:
        """Completed savepoints; each has the requested time of the commit that it keeps."""
        return tuple(instant for instant in self.completed() if instant.action is Action.SAVEPOINT)

    def kept_moment(self, savepoint: Instant) -> str:
        """The completion time of the commit that a savepoint keeps; if that is archived, the savepoint's."""
        commit = self.find(savepoint.requested_time)
        return _completion(commit or savepoint)

    def new_since(self, earlier: Timeline) -> tuple[Instant, ...]:
        """Instants in states that an earlier timeline did not show.

        The cost depends on the number of these, not on the length of the timeline.

        :param earlier: a timeline of the same table, from :meth:`load` too.
        """
        found = (Instant.parse(name, self._layout) for name in self._names - earlier._names)
        return tuple(i for i in found if i is not None and not earlier._has_completed(i.requested_time))

    def _has_completed(self, requested_time: str) -> bool:
        known = self._by_time.get(requested_time)
        return known is not None and known.state is State.COMPLETED

    @property
    def newest_completion(self) -> str:
        """The largest completion time of all instants; empty when none has completed."""
        if self._newest_completion is None:
            self._newest_completion = max(map(_completion, self._by_time.values()), default="")
        return self._newest_completion

    @property
    def starts(self) -> str:
        """Requested time of the first completed commit; empty without a commit.

        An older instant that is not pending was archived, so it had completed (Hudi's
        ``containsOrBeforeTimelineStarts``). Views of an earlier moment keep the start of the whole timeline.
        """
        if self._starts is None:
            completed = (each for each in self._by_time.values() if each.state is State.COMPLETED)
            commits = (each.requested_time for each in completed if each.action in WRITE_ACTIONS)
            self._starts = min(commits, default="")
        return self._starts

    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight instants, in the order of their requested times."""
        return tuple(sorted(self._pending, key=lambda instant: instant.requested_time))

    @cached_property
    def _pending(self) -> tuple[Instant, ...]:
        return tuple([each for each in self._by_time.values() if each.state is not State.COMPLETED])

    def find(self, requested_time: str) -> Instant | None:
        """The instant with this requested time, if it is on the active timeline; never a savepoint."""
        return self._by_time.get(requested_time)

    def until(self, completion_time: str) -> Timeline:
        """This timeline with only the instants that completed up to a time; later ones are pending on it."""
        return self.showing(lambda instant: _completion(instant) <= completion_time)

    def showing(self, is_shown: Callable[[Instant], bool]) -> Timeline:
        """This timeline with only some of its completed instants; the others are pending on it.

        Hidden instants stay on it as pending ones. Without them, a reader could take their files for files of
        archived commits.

        :param is_shown: decides for each completed instant.
        """
        shown = Timeline(self._storage, (), self.starts)
        shown._by_time = {
            key: each if each.state is not State.COMPLETED or is_shown(each) else _as_pending(each)
            for key, each in self._by_time.items()
        }
        return shown

    def as_of(self, moment: str) -> Timeline:
        """This timeline as it was right after a moment.

        :param moment: the requested or the completion time of a completed commit, for the moment right after
            that commit completed; or any other instant time, for the instants that had completed by then.
            Completion times order the commits, so the answer never changes later.
        :raises InvalidInputError: when the text is not an instant time.
        :raises NoSuchInstantError: when nothing had completed by then.
        """
        commits, bound = self.commits(), self.bound(moment)
        if not any(_completion(instant) <= bound for instant in commits):
            first = (
                f"the first commit completed at {_completion(commits[0])}"
                if commits
                else "there is no commit"
            )
            raise NoSuchInstantError(
                f"table {self._storage.root}: no commit had completed as of {moment}; {first}", instant=moment
            )
        return self.until(bound)

    def bound(self, moment: str) -> str:
        """The completion time up to which instants are seen as of a moment.

        :param moment: see :meth:`as_of`.
        :raises InvalidInputError: when the text is not an instant time.
        """
        parse_time(moment)
        requested = (_completion(i) for i in self.commits() if i.requested_time == moment)
        # The requested time of a commit goes first: another commit may have completed at the same time.
        return next(requested, moment)

    def names_commit(self, moment: str) -> bool:
        """Whether a moment is the requested or the completion time of a completed commit."""
        return any(moment in (each.requested_time, each.completion_time) for each in self.commits())

    def hiding(self, instants: Iterable[Instant]) -> Timeline:
        """This timeline with some archived instants as pending ones.

        :param instants: archived instants. Readers would otherwise take them for committed, because they are
            older than the timeline.
        """
        shown = Timeline(self._storage, (), self.starts)
        shown._by_time = {**self._by_time, **{_key(each): _as_pending(each) for each in instants}}
        return shown

    def read(self, instant: Instant) -> bytes:
        """The content of an instant's file.

        :raises NoSuchInstantError: when the file is gone (rolled back or archived meanwhile).
        """
        try:
            return self._storage.read(instant_path(instant))
        except FileNotFoundError:
            raise NoSuchInstantError(
                f"table {self._storage.root}: instant file {instant.file_name} is gone; reload the timeline",
                instant=instant.requested_time,
            ) from None

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """The commit metadata of a completed commit or replacecommit."""
        return decode_commit_metadata(self.read(instant))

    def plan(self, instant: Instant) -> dict[str, Any] | None:
        """The plan that an instant was requested with: Hudi's own record, such as
        ``HoodieRequestedReplaceMetadata`` with its ``clusteringPlan``, ``HoodieCompactionPlan`` or
        ``HoodieCleanerPlan``.

        :param instant: pending or completed.
        :return: None for an instant that has no plan, such as an ingestion.
        """
        for action in instant.action.when_pending or (instant.action,):
            with suppress(FileNotFoundError):
                requested = replace(instant, action=action, state=State.REQUESTED)
                content = self._storage.read(instant_path(requested))
                return decode(content) if content else None
        return None


class _Listing:
    """A listing of the timeline folder, made from the listing before and the new names."""

    _newest: WeakKeyDictionary[Storage, _Listing] = WeakKeyDictionary()

    def __init__(
        self,
        names: frozenset[str],
        furthest: dict[str, Instant],
        pending: dict[str, Instant],
        newest_completion: str,
    ) -> None:
        self.names = names
        self.furthest = furthest
        self.pending = pending
        self.newest_completion = newest_completion

    @classmethod
    def of(cls, storage: Storage, layout: int, names: frozenset[str]) -> _Listing:
        known = cls._newest.get(storage)
        if known is None or not known.names <= names:
            known = cls(frozenset(), {}, {}, "")  # an instant of the earlier listing is gone
        furthest, pending = dict(known.furthest), dict(known.pending)
        newest_completion = known.newest_completion
        for name in names - known.names:
            instant = Instant.parse(name, layout)
            if instant is None:
                continue
            newest_completion = max(newest_completion, _completion(instant))
            key = _key(instant)
            other = furthest.get(key)
            if other is None or _ORDER[instant.state] > _ORDER[other.state]:
                furthest[key] = pending[key] = instant
            if furthest[key].state is State.COMPLETED:
                pending.pop(key, None)
        cls._newest[storage] = listing = cls(names, furthest, pending, newest_completion)
        return listing


def _as_pending(instant: Instant) -> Instant:
    return Instant(instant.requested_time, instant.action, State.INFLIGHT, layout=instant.layout)


def _key(instant: Instant) -> str:
    # Requested times are unique, except that a savepoint has the requested time of its commit.
    is_savepoint = instant.action is Action.SAVEPOINT
    return f"{instant.requested_time}.{instant.action}" if is_savepoint else instant.requested_time


def _listed(storage: Storage, folder: str) -> Iterable[str]:
    """Names of the instants' files, as they were at one moment.

    Archival deletes the oldest instants first, so a listing is complete when its oldest name still exists. A
    folder of one page or less is listed in one step.
    """
    while True:
        names = list(storage.names(folder))
        if len(names) <= _ONE_PAGE or storage.stat(f"{folder}/{min(names)}") is not None:
            return names


_ONE_PAGE = 400


def _active(storage: Storage) -> frozenset[str]:
    """Names of the instants' files without those that were archived before they were listed."""
    from airflow_provider.table.timeline.archived_timeline import (
        newest_archived,  # imported here, because that module imports this one
    )

    archived = newest_archived(storage)
    while True:
        names = _listed(storage, TIMELINE_FOLDER)
        before, archived = archived, newest_archived(storage)
        if archived == before:  # otherwise the listing may be older than the archival
            parsed = ((name, Instant.parse(name)) for name in names)
            return frozenset(name for name, i in parsed if i is None or i.requested_time > archived)


def _completion(instant: Instant) -> str:
    return instant.completion_time or ""
