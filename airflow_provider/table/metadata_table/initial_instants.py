"""The instants with which partitions of the metadata table begin: ``00000000000000000``, ``...1``, and so on.

They are no moments, only names. Hudi gives a partition that it fills the first one that is not on the
metadata table's timeline, whatever the partition is; so do we. An instant of the table's own in their place
would be taken for a write: whoever initialises the next partition could take it once more, and roll back what
has it.

Source: ``HoodieBackedTableMetadataWriter.generateUniqueInstantTime``.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Timeline, find_archived

_SOLO_COMMIT = "00000000000000"  # HoodieTableMetadata.SOLO_COMMIT_TIMESTAMP

_LENGTH = 17


def is_initial(instant: str) -> bool:
    """Whether an instant of the metadata table is one with which a partition begins.

    :param instant: requested time.
    """
    return instant.startswith(_SOLO_COMMIT)


def free_initial_instants(metadata_table: Storage, but: Collection[str] = ()) -> Iterator[str]:
    """The names that no instant of the metadata table has, in the order in which Hudi takes them.

    Hudi takes one again once it is archived. We do not: files of the earlier one may be there.

    :param metadata_table: its storage.
    :param but: names that are not to be taken either.
    """
    timeline = Timeline.load(metadata_table, archived_too=True)
    taken = {*but, *(instant.requested_time for instant in timeline.instants)}
    for name in (f"{number:0{_LENGTH}d}" for number in itertools.count()):
        if name not in taken and find_archived(metadata_table, name) is None:
            yield name
