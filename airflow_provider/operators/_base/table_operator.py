"""The base of operators that work on one table."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_provider.hooks.lock_provider import LockProviderHook
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.plugins.links import InstantLink, TableLink
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions
from airflow_provider.table.hudi_table import HudiTable


class TableOperator(BaseOperator):
    """Base of operators that work on one table.

    :param table: ``database.table``, or the table's path or URL (templated).
    :param hudi_options: options by Hudi's own names, such as ``hoodie.parquet.max.file.size``. They override
        those in the table's properties. The operator's own arguments override the table's options too, but
        must not contradict these. Options for other operators are checked, and have no effect; see
        docs/configuration.md (templated).
    :param metastore_conn_id: connection of type ``table_metastore``; for a table's name (templated).
    :param lock_conn_id: connection of type ``table_lock`` (templated).
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook` (templated).
    """

    operator_extra_links: Collection[BaseOperatorLink] = (TableLink(), InstantLink())
    template_fields: Sequence[str] = (
        "table",
        "hudi_options",
        "metastore_conn_id",
        "lock_conn_id",
        "storage_conn_id",
    )

    def __init__(
        self,
        *,
        table: str,
        hudi_options: Mapping[str, Any] | None = None,
        metastore_conn_id: str = MetastoreHook.default_conn_name,
        lock_conn_id: str = LockProviderHook.default_conn_name,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.hudi_options = hudi_options
        self.metastore_conn_id = metastore_conn_id
        self.lock_conn_id = lock_conn_id
        self.storage_conn_id = storage_conn_id

    def pre_execute(self, context: Any) -> None:
        """Set the mapped task's index for the description of the writer: Airflow does not."""
        os.environ["AIRFLOW_CTX_MAP_INDEX"] = str(context["ti"].map_index)

    def _options(self, table: HudiTable) -> EffectiveOptions:
        return EffectiveOptions(HudiOptions.parse(self.hudi_options), table.hudi_options)

    def _lock_config(self, options: EffectiveOptions) -> dict[str, Any]:
        return LockProviderHook(self.lock_conn_id).lock_config(options.options.lock)

    def _lock(self, table: HudiTable, options: EffectiveOptions) -> LockProvider:
        return open_lock(self._lock_config(options), table.storage)
