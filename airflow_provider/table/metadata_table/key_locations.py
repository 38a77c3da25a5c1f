"""Looking up many record keys in all file groups of ``record_index`` at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider.table.metadata_table.keys import file_group_indexes
from airflow_provider.table.metadata_table.records import RecordLocation

Numbers = npt.NDArray[np.int64]

Located = tuple[Numbers, list[RecordLocation]]
"""The number of each key's location, or -1 for a key without one; and the locations."""

_WORTH_THREADS = 50_000  # from so many keys on, threads are faster


def locate_keys(keys: pa.Array, file_groups: int, look: Callable[[int, pa.Array], Located]) -> Located:
    """The locations of many record keys.

    :param keys: strings without nulls.
    :param file_groups: the number of file groups of the index.
    :param look: locates keys in the file group with a number; called from several threads.
    """
    which = np.full(len(keys), -1, np.int64)
    if not file_groups or not len(keys):
        return which, []
    groups = file_group_indexes(keys, file_groups)
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    numbers: dict[RecordLocation, int] = {}
    with ThreadPoolExecutor(os.cpu_count() if len(keys) >= _WORTH_THREADS else 1, "record-index") as pool:
        found = pool.map(lambda part: look(int(groups[part[0]]), keys.take(pa.array(part))), parts)
        for part, (codes, locations) in zip(parts, found, strict=True):
            known = [numbers.setdefault(each, len(numbers)) for each in locations]
            which[part] = np.array([*known, -1], np.int64)[codes]
    return which, list(numbers)
