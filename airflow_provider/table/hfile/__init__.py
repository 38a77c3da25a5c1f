"""HFiles of version 3, as Hudi's metadata table has them: sorted pairs of bytes, found by key."""

from airflow_provider.table.hfile.format import Compression
from airflow_provider.table.hfile.reader import HFileReader
from airflow_provider.table.hfile.writer import BLOCK_SIZE, HFileWriter

__all__ = ["BLOCK_SIZE", "Compression", "HFileReader", "HFileWriter"]
