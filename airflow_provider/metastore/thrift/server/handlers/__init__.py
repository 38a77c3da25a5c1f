"""The methods of ``ThriftHiveMetastore``: each handler answers one group of them, by their names there.

A method gets Hive's structs and returns them; an error of this package becomes an exception that the method
declares (:mod:`~airflow_provider.metastore.thrift.server.processor`). Begin with
:mod:`~airflow_provider.metastore.thrift.server.handlers.catalog_handler`.
"""

from airflow_provider.metastore.thrift.server.handlers.catalog_handler import CatalogHandler
from airflow_provider.metastore.thrift.server.handlers.constraint_handler import ConstraintHandler
from airflow_provider.metastore.thrift.server.handlers.empty_answers import EmptyAnswers
from airflow_provider.metastore.thrift.server.handlers.notification_handler import NotificationHandler
from airflow_provider.metastore.thrift.server.handlers.partition_handler import PartitionHandler
from airflow_provider.metastore.thrift.server.handlers.partition_read_handler import PartitionReadHandler
from airflow_provider.metastore.thrift.server.handlers.privilege_handler import PrivilegeHandler
from airflow_provider.metastore.thrift.server.handlers.statistics_handler import StatisticsHandler
from airflow_provider.metastore.thrift.server.handlers.transaction_handler import TransactionHandler

__all__ = [
    "CatalogHandler",
    "ConstraintHandler",
    "EmptyAnswers",
    "NotificationHandler",
    "PartitionHandler",
    "PartitionReadHandler",
    "PrivilegeHandler",
    "StatisticsHandler",
    "TransactionHandler",
]
