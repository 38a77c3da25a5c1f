"""HFiles of version 3, as Hudi's metadata table has them: sorted pairs of bytes, found by key."""

from airflow_provider.table.hfile.format import Compression
from airflow_provider.table.hfile.reader import HFileReader
from airflow_provider.table.hfile.writer import HFileWriter

__all__ = ["Compression", "HFileReader", "HFileWriter"]
