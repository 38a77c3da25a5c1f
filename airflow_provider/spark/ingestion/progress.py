"""The progress of a write on a Spark cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from airflow_provider.ingestion.file_groups import WritePlan
from airflow_provider.table.files import marked_files

log = logging.getLogger(__name__)

_TELL_EVERY_SECONDS = 10.0


@contextmanager
def progress_logged(plan: WritePlan) -> Iterator[None]:
    """Log every few seconds how many file groups a write has begun, by its markers on storage.

    :param plan: the write's plan.
    """
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_TELL_EVERY_SECONDS):
            with suppress(Exception):  # the report is not worth a failure
                begun = min(len(marked_files(plan.storage, plan.instant)), len(plan.targets))
                log.info("instant %s: %d of %d file groups begun", plan.instant, begun, len(plan.targets))

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
