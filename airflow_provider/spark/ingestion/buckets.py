"""The bucket of each row of a DataFrame, by the hash of its record key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.keys import record_keys
from airflow_provider.table.properties import TableConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def bucket_of_rows(
    frame: DataFrame, place: Column, paths: Sequence[str], config: TableConfig, index: BucketIndex
) -> Column:
    """The number of each row's bucket, as an expression.

    :param frame: rows with the columns of the record key.
    :param place: the position of a row's partition among the paths.
    :param paths: partition paths.
    :param config: the table's configuration.
    :param index: the table's bucket index.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.pandas import functions

    if index.buckets == 1:
        return F.lit(0)
    names = config.record_key_fields

    def number(places: pa.Array, *columns: pa.Array) -> pa.Array:
        rows = pa.Table.from_arrays(list(columns), names=list(names))
        at = places.to_numpy(zero_copy_only=False).astype(np.int64)
        return pa.array(index.of_rows(record_keys(rows, config), paths, at), pa.int32())

    # No annotation: PySpark would look for the kind of the function in it.
    number.__annotations__.clear()
    arrow_udf: Any = functions.arrow_udf  # its types know of no function of any number of columns
    found: Column = arrow_udf(number, "int")(place, *(frame[name] for name in names))
    return found
