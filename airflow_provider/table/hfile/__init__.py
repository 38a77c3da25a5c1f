"""HFiles of version 3, the base files of Hudi's metadata table: pairs of bytes that a reader finds by key.

Begin with ``format``, which holds the layout that ``reader`` and ``writer`` share. HBase defines it.
"""

from airflow_provider.table.hfile.format import Compression
from airflow_provider.table.hfile.reader import HFileReader
from airflow_provider.table.hfile.writer import BLOCK_SIZE, HFileWriter

__all__ = ["BLOCK_SIZE", "Compression", "HFileReader", "HFileWriter"]
