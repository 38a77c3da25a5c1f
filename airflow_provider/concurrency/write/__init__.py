"""A write from its beginning to its commit.

Begin to read at ``begin`` and ``writer``; ``committing`` decides at the commit point whether the write
commits, merges again, or raises.
"""

from airflow_provider.concurrency.write.begin import begin_planned, begin_write
from airflow_provider.concurrency.write.operation_lookup import (
    find_operation,
    find_operations,
    roll_back_operation,
    settle_operation,
)
from airflow_provider.concurrency.write.schema_change import ALTER_SCHEMA, change_schema
from airflow_provider.concurrency.write.settings import WriteSettings
from airflow_provider.concurrency.write.write_transaction import WriteTransaction
from airflow_provider.concurrency.write.writer import Writer

__all__ = [
    "ALTER_SCHEMA",
    "WriteSettings",
    "WriteTransaction",
    "Writer",
    "begin_planned",
    "begin_write",
    "change_schema",
    "find_operation",
    "find_operations",
    "roll_back_operation",
    "settle_operation",
]
