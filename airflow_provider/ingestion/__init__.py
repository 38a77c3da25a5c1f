"""Writing rows into a table in plain Python: planning, key look-up, merge (Hudi's write client).

Begin with ``write_rows`` and ``ingestion``; ``file_groups`` plans and writes, ``files`` reads sources.
"""

from airflow_provider.ingestion.arrow import ingest_arrow
from airflow_provider.ingestion.files import ingest_files
from airflow_provider.ingestion.ingest_job import OPERATIONS, IngestJob, WriteOperation

__all__ = ["OPERATIONS", "IngestJob", "WriteOperation", "ingest_arrow", "ingest_files"]
