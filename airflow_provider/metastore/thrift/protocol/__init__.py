"""The parts that client and server share: the interface definition, structs, errors, and SASL.

The ``.thrift`` files are excerpts of Hive's; field ids must stay Hive's.
"""

from airflow_provider.metastore.thrift.protocol.encoded_partitions import EncodedPartitions
from airflow_provider.metastore.thrift.protocol.errors import from_hive, in_hive
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.structs import (
    EncodedNames,
    EncodedTable,
    TableStructs,
    database_struct,
    encoded_names,
    function_struct,
    partition_name,
    partition_names,
    partition_struct,
    read_database,
    read_function,
    read_partition,
    read_storage_descriptor,
    read_table,
    table_struct,
    values_in_name,
)

__all__ = [
    "EncodedNames",
    "EncodedPartitions",
    "EncodedTable",
    "TableStructs",
    "database_struct",
    "encoded_names",
    "from_hive",
    "function_struct",
    "hive",
    "in_hive",
    "partition_name",
    "partition_names",
    "partition_struct",
    "read_database",
    "read_function",
    "read_partition",
    "read_storage_descriptor",
    "read_table",
    "table_struct",
    "values_in_name",
]
