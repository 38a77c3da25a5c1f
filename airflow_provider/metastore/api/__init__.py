"""The class :class:`Metastore` and its parts.

Each method opens one database transaction and calls functions of the rooms below. Rules belong in those
rooms, not here.
"""

from airflow_provider.metastore.api.catalog_api import CatalogApi
from airflow_provider.metastore.api.housekeeping import EVENT_TTL_SECONDS, Housekeeper, Recover
from airflow_provider.metastore.api.lock_api import LockApi
from airflow_provider.metastore.api.metastore import Metastore, open_embedded_metastore
from airflow_provider.metastore.api.notification_api import NotificationApi
from airflow_provider.metastore.api.transaction_api import TransactionApi

__all__ = [
    "EVENT_TTL_SECONDS",
    "CatalogApi",
    "Housekeeper",
    "LockApi",
    "Metastore",
    "NotificationApi",
    "Recover",
    "TransactionApi",
    "open_embedded_metastore",
]
