"""Does a record key live in a base file? (Hudi's bloom index, for one file.)"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.table.base_file import BaseFileReader
from airflow_provider.table.schema import META_COLUMNS
from airflow_provider.table.storage import Storage

_RECORD_KEY = META_COLUMNS[2]


def keys_in_base_file(storage: Storage, path: str, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Which keys are in a base file.

    Its key range and its bloom filter, both in its footer, throw most of the others out; only if
    something is left, its key column is read.

    :param storage: the table's storage.
    :param path: path relative to the table.
    :param keys: record keys, without nulls.
    :return: one boolean a key.
    :raises CorruptTableError: when it is not a base file.
    """
    candidates = np.ones(len(keys), np.bool_)
    with BaseFileReader(storage, path) as base_file:
        footer = base_file.footer
        if not footer.num_rows:
            return np.zeros(len(keys), np.bool_)
        if footer.min_key is not None and footer.max_key is not None:
            in_range = pc.and_(pc.greater_equal(keys, footer.min_key), pc.less_equal(keys, footer.max_key))
            candidates = np.array(in_range)
        if footer.bloom is not None and candidates.any():
            candidates[candidates] = footer.bloom.might_contain(keys.filter(pa.array(candidates)))
        if not candidates.any():
            return candidates
        wanted = keys.filter(pa.array(candidates))
        found = np.zeros(len(wanted), np.bool_)
        for group in base_file.row_groups([_RECORD_KEY]):
            found |= np.array(pc.is_in(wanted, value_set=group[_RECORD_KEY].combine_chunks()))
    candidates[candidates] = found
    return candidates
