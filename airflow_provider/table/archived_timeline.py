"""The archived timeline: instants that were moved out of ``.hoodie/timeline``.

Hudi's LSM timeline (``LSMTimeline``): Parquet files in ``.hoodie/timeline/history``, named
``<first instant>_<last instant>_<level>.parquet``; the manifest of the current version says
which of them count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.instant import WRITE_ACTIONS, Action, Instant, State
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import TIMELINE_FOLDER

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/history"

_COLUMNS = {"requested": "instantTime", "completed": "completionTime", "action": "action"}


def archived_commits(
    storage: Storage, *, requested_after: str | None = None, completed_after: str | None = None
) -> Iterator[Instant]:
    """Completed commits and replacecommits that were archived.

    Only the columns with times and actions are read; no commit metadata.

    :param storage: the table's storage.
    :param requested_after: leave out what was requested at or before this time.
    :param completed_after: leave out what completed at or before this time.
    :raises CorruptTableError: when the manifest is not one.
    """
    names = _current_files(storage)
    if requested_after is not None:
        names = [name for name in names if name.split("_")[1] > requested_after]
    if not names:
        return
    import pyarrow.dataset as ds  # pulls pandas in, which would cost every import of the engine a second

    wanted = ds.field(_COLUMNS["action"]).isin([str(action) for action in WRITE_ACTIONS])
    if requested_after is not None:
        wanted &= ds.field(_COLUMNS["requested"]) > requested_after
    if completed_after is not None:
        wanted &= ds.field(_COLUMNS["completed"]) > completed_after
    filesystem, base = storage.arrow()
    paths = [f"{base}/{HISTORY_FOLDER}/{name}" for name in names]
    history = ds.dataset(paths, format="parquet", filesystem=filesystem)
    for row in history.to_table(columns=list(_COLUMNS.values()), filter=wanted).to_pylist():
        yield Instant(
            row[_COLUMNS["requested"]],
            Action(row[_COLUMNS["action"]]),
            State.COMPLETED,
            row[_COLUMNS["completed"]],
        )


def _current_files(storage: Storage) -> list[str]:
    try:
        version = storage.read(f"{HISTORY_FOLDER}/_version_").decode().strip()
        manifest = storage.read(f"{HISTORY_FOLDER}/manifest_{version}")
    except FileNotFoundError:
        return []  # nothing was archived
    try:
        return [str(entry["fileName"]) for entry in json.loads(manifest)["files"]]
    except (ValueError, KeyError, TypeError) as error:
        path = f"{HISTORY_FOLDER}/manifest_{version}"
        raise CorruptTableError(
            f"table {storage.root}: {path} is not a manifest of the archived timeline: {error!r}", path=path
        ) from error
