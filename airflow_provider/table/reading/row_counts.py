"""The number of rows in base files, as the commits say that wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from airflow_provider.table.file_groups import BaseFile
from airflow_provider.table.hudi_table import HudiTable

_FILES_A_COMMIT = 4  # the metadata of a commit takes as long to read as so many footers


def rows_by_commits(table: HudiTable, base_files: Iterable[BaseFile]) -> int | None:
    """The number of rows in base files by ``numWrites`` of their commits, so that no file is opened.

    :param table: the table.
    :param base_files: the files.
    :return: None when the footers have to tell: a commit is archived, it does not name a file or counts no
        row in it, or the footers are read sooner.
    """
    paths: dict[str, set[str]] = {}
    for each in base_files:
        paths.setdefault(each.instant, set()).add(each.path)
    if len(paths) * _FILES_A_COMMIT > sum(map(len, paths.values())):
        return None
    timeline, rows = table.timeline(), 0
    commits = {commit.requested_time: commit for commit in timeline.commits()}
    if not paths.keys() <= commits.keys():
        return None
    for instant, of_instant in paths.items():
        with suppress(FileNotFoundError):  # it has just been archived
            stats = timeline.commit_metadata(commits[instant]).write_stats
            written = {each.path: each.num_writes for each in stats if each.path in of_instant}
            if len(written) == len(of_instant) and all(written.values()):
                rows += sum(written.values())
                continue
        return None
    return rows
