"""A reader of tables: the arguments that it sends with every read, and the newest event that it has seen."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypedDict

from airflow_provider.metastore.model.write_ids import NO_OPEN, ValidWriteIdList

NOW = NO_OPEN
"""The event of a :class:`ReaderSession` for which no copy is new enough: the database answers."""


@dataclass
class ReaderSession:
    """The newest event that one reader has seen, which the reader may take from replica to replica.

    With a session, no read shows less than an earlier one. This also holds for changes that have no write id
    in the reader's list: those of external tables, and those of transactions that have not ended. Threads may
    share a session.

    :param event_id: the newest event whose state the reader has seen. A reader that must see its own change
        of an external table sets it to the event of the change, or to :data:`NOW` for its next read.
    """

    event_id: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def saw(self, event_id: int) -> None:
        """Record the event up to which an answer is new."""
        with self._lock:
            self.event_id = event_id if self.event_id == NOW else max(self.event_id, event_id)


class Reader(TypedDict, total=False):
    """The arguments that a reader may send with each read of a table.

    ``valid_write_ids``: the table's write ids that the reader sees, from its
    :class:`~airflow_provider.metastore.model.ReadSnapshot`; a reader of an external table leaves them out.
    ``table_id``: the table's id, from the same snapshot. ``session``: the newest event that the reader has
    seen. ``require_write_ids``: as in :func:`~airflow_provider.metastore.cache.open_cached_store`, for this
    read; a server has an option of its own for it.
    """

    valid_write_ids: ValidWriteIdList | None
    table_id: int | None
    session: ReaderSession | None
    require_write_ids: bool | None
