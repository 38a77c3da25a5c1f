"""What the metastore speaks of: catalog objects, locks, snapshots, write ids, table names.

These are values. Nothing here opens a database or imports SQLAlchemy, so a Spark job and a Thrift client use
them as the server does. Begin with :mod:`~airflow_provider.metastore.model.objects`; visibility
(``ValidTxnList``, ``ValidWriteIdList``) is in :mod:`~airflow_provider.metastore.model.write_ids`.
"""

from airflow_provider.metastore.model.events import (
    MESSAGE_FORMAT,
    EventType,
    LogConsumer,
    NewEvent,
    NotificationEvent,
    Purged,
)
from airflow_provider.metastore.model.hive_json import (
    decode_partition,
    decode_table,
    decode_write_id,
    encode_database,
    encode_function,
    encode_partition,
    encode_table,
)
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
    partition_key,
    partition_order,
)
from airflow_provider.metastore.model.reader import NOW, Reader, ReaderSession
from airflow_provider.metastore.model.table_name import is_location, split_table_name
from airflow_provider.metastore.model.transaction_objects import TableWriteInfo, TxnInfo, TxnState, TxnType
from airflow_provider.metastore.model.users import system_user
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
    "MESSAGE_FORMAT",
    "NOW",
    "NO_ID",
    "NO_OPEN",
    "NO_WRITE_ID",
    "PROVIDER",
    "Column",
    "DatabaseInfo",
    "EventType",
    "FunctionInfo",
    "Insertion",
    "LockComponent",
    "LockInfo",
    "LockResponse",
    "LockState",
    "LockType",
    "LogConsumer",
    "NewEvent",
    "NotificationEvent",
    "PartitionInfo",
    "PartitionSpec",
    "PartitionValues",
    "Purged",
    "ReadSnapshot",
    "Reader",
    "ReaderSession",
    "TableInfo",
    "TableSnapshot",
    "TableWriteInfo",
    "TxnInfo",
    "TxnState",
    "TxnType",
    "ValidTxnList",
    "ValidWriteIdList",
    "compare",
    "decode_partition",
    "decode_table",
    "decode_write_id",
    "encode_database",
    "encode_function",
    "encode_partition",
    "encode_table",
    "is_location",
    "must_wait",
    "partition_key",
    "partition_order",
    "split_table_name",
    "system_user",
    "waits_for",
]
