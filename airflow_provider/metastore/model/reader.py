"""A reader of tables: what it sends with every read, and what it has seen so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypedDict

from airflow_provider.metastore.model.write_ids import NO_OPEN, ValidWriteIdList

NOW = NO_OPEN
"""As the event of a :class:`ReaderSession`: no copy is new enough, so the database is asked."""


@dataclass
class ReaderSession:
    """What one reader has seen so far; it may take it from replica to replica.

    With it, no read shows less than an earlier one, not even of changes that no write id tells: those
    of external tables, and of transactions that have not ended. May be shared by threads.

    :param event_id: the newest event whose state was seen. To see one's own change of an external table,
        set it to the change's event; or to :data:`NOW`, for what is read next.
    """

    event_id: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def saw(self, event_id: int) -> None:
        """Take note of an answer's age."""
        with self._lock:
            self.event_id = event_id if self.event_id == NOW else max(self.event_id, event_id)


class Reader(TypedDict, total=False):
    """What a reader may say with each read of a table.

    ``valid_write_ids``: which of the table's write ids it sees, out of its
    :class:`~airflow_provider.metastore.model.ReadSnapshot`; left out for an external table.
    ``table_id``: which table is meant, out of the same snapshot. ``session``: what it has seen so far.
    ``require_write_ids``: as in :func:`~airflow_provider.metastore.cache.open_cached_store`, for this
    read; a server has an option of its own for it.
    """

    valid_write_ids: ValidWriteIdList | None
    table_id: int | None
    session: ReaderSession | None
    require_write_ids: bool | None
