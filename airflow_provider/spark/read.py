"""Reading a table back as a Spark DataFrame."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider.spark.source import spark_schema
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.schema import with_meta_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOB = re.compile(r"([\\*?\[\]{}])")


def read_snapshot(
    spark: SparkSession, table: HudiTable, as_of: str | None = None, *, meta_columns: bool = False
) -> DataFrame:
    """The rows of a table at one moment.

    :param spark: a session, local or over Spark Connect.
    :param table: the table.
    :param as_of: an instant (requested or completion time of a commit: right after it
        completed) or any instant time; now when None.
    :param meta_columns: whether Hudi's five meta columns come along.
    :return: a DataFrame over the base files of that snapshot; it stays what it is while
        writers go on.
    :raises NoSuchInstantError: when nothing had completed as of then.
    """
    schema = spark_schema(with_meta_columns(table.schema) if meta_columns else table.schema)
    files = table.view(as_of).all_base_files()
    if not files:
        return spark.createDataFrame([], schema)
    # Spark takes a path for a pattern. Each file is its own root, so that Spark does not take
    # folders named column=value for columns: those are in the files.
    paths = [_GLOB.sub(r"\\\1", table.storage.url(base_file.path)) for base_file in files]
    return spark.read.schema(schema).parquet(*paths)
