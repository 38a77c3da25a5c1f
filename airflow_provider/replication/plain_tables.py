"""The replication of tables that are no Hudi tables: it copies their files to the target.

Such a table has no timeline that says which files belong together. So a reader of the target may for a moment
see only a part of the files of an INSERT. A reader of the source may too. The folders of a transactional
table of Hive have write ids in their names; the folders of transactions that were not committed are left out.
"""

from __future__ import annotations

import re

from airflow_provider.replication.copying import Copier
from airflow_provider.table.file_groups import ValidWriteIds
from airflow_provider.table.storage import FileStatus, Storage

# AcidUtils: base_N, delta_N_M, delete_delta_N_M, each perhaps with a statement's number or a visibility txn.
_OF_WRITE_ID = re.compile(r"(?:^|/)(?:base_|(?:delete_)?delta_\d+_)(\d+)(?:_[^/]*)?/")


def bring_files(
    source: Storage,
    target: Storage,
    copier: Copier,
    valid_write_ids: ValidWriteIds | None = None,
    *,
    deletes: bool,
) -> None:
    """Copy the files of a folder that the target lacks, or has in another version.

    :param source: the table's or the partition's storage at the source; nothing happens when it is missing.
    :param target: its storage at the target.
    :param copier: copies files.
    :param valid_write_ids: the write ids that a reader sees, for a transactional table of Hive; None for all.
    :param deletes: whether to delete files that only the target has. This is safe in a table that the
        replication has created, because no other process has put files there.
    :raises ReplicationError: when a file is gone before it is copied; the error names it.
    """
    if source.stat("") is None:
        return
    wanted = {each.path: each for each in source.list("", recursive=True) if _is_seen(each, valid_write_ids)}
    there = {each.path: each for each in target.list("", recursive=True)}
    anew = [path for path, each in wanted.items() if path in there and _differs(each, there[path])]
    copier.copy(source, target, ((path, None) for path in wanted if path not in there))
    copier.copy(source, target, ((path, None) for path in anew), anew=True)
    for path in there.keys() - wanted.keys() if deletes else ():
        target.delete(path)


def _is_seen(file: FileStatus, valid_write_ids: ValidWriteIds | None) -> bool:
    found = _OF_WRITE_ID.search(file.path)
    return found is None or valid_write_ids is None or valid_write_ids.is_valid(int(found[1]))


def _differs(source: FileStatus, target: FileStatus) -> bool:
    return source.size != target.size or source.modified > target.modified
