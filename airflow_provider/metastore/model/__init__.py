"""What the metastore speaks of: catalog objects, locks, snapshots, write ids, table names.

These are values. Nothing here opens a database or imports SQLAlchemy, so a Spark job and a Thrift client use
them as the server does. Begin with :mod:`~airflow_provider.metastore.model.objects`; visibility
(``ValidTxnList``, ``ValidWriteIdList``) is in :mod:`~airflow_provider.metastore.model.write_ids`.
"""

from airflow_provider.metastore.model.lock_objects import (
    LOCK_TIMEOUT_SECONDS,
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
    LockType,
    must_wait,
    waits_for,
)
from airflow_provider.metastore.model.objects import (
    DEFAULT_PARTITION,
    EXTERNAL_TABLE,
    HUDI,
    MANAGED_TABLE,
    NO_ID,
    NO_WRITE_ID,
    PROVIDER,
    Column,
    DatabaseInfo,
    FunctionInfo,
    Insertion,
    PartitionInfo,
    PartitionSpec,
    PartitionValues,
    TableInfo,
)
from airflow_provider.metastore.model.reader import NOW, Reader, ReaderSession
from airflow_provider.metastore.model.table_name import is_location, split_table_name
from airflow_provider.metastore.model.write_ids import (
    NO_OPEN,
    ReadSnapshot,
    TableSnapshot,
    ValidTxnList,
    ValidWriteIdList,
    compare,
)

__all__ = [
    "DEFAULT_PARTITION",
    "EXTERNAL_TABLE",
    "HUDI",
    "LOCK_TIMEOUT_SECONDS",
    "MANAGED_TABLE",
    "NOW",
    "NO_ID",
    "NO_OPEN",
    "NO_WRITE_ID",
    "PROVIDER",
    "Column",
    "DatabaseInfo",
    "FunctionInfo",
    "Insertion",
    "LockComponent",
    "LockInfo",
    "LockResponse",
    "LockState",
    "LockType",
    "PartitionInfo",
    "PartitionSpec",
    "PartitionValues",
    "ReadSnapshot",
    "Reader",
    "ReaderSession",
    "TableInfo",
    "TableSnapshot",
    "ValidTxnList",
    "ValidWriteIdList",
    "compare",
    "is_location",
    "must_wait",
    "split_table_name",
    "waits_for",
]
