"""The instants with which partitions of the metadata table begin: ``00000000000000000``, ``...1``, and so on.

They are names, not moments. Hudi fills a new partition under the first such name that is not on the metadata
table's timeline, and so does this package. An instant time of the table itself would look like a write: the
writer that initialises the next partition could use it again, and roll back the first one.

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
    """Whether an instant of the metadata table is an initial one, with which a partition begins.

    :param instant: requested time.
    """
    return instant.startswith(_SOLO_COMMIT)


def free_initial_instants(metadata_table: Storage, but: Collection[str] = ()) -> Iterator[str]:
    """The initial instants that are not used yet, in the order in which Hudi uses them.

    Hudi reuses a name once its instant is archived. This package does not, because files of the earlier
    instant may still exist.

    :param metadata_table: the metadata table's storage.
    :param but: further names to leave out.
    """
    timeline = Timeline.load(metadata_table, archived_too=True)
    taken = {*but, *(instant.requested_time for instant in timeline.instants)}
    for name in (f"{number:0{_LENGTH}d}" for number in itertools.count()):
        if name not in taken and find_archived(metadata_table, name) is None:
            yield name
