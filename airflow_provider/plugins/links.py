"""Links from a task to its table and its instant, and to Spark's user interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.sdk import BaseHook, BaseOperatorLink, conf
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider.plugins.plugin import PAGE_ROUTE

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_HISTORY_SERVER = "spark.yarn.historyServer.address"
_RESOURCE_MANAGER = "yarn_resourcemanager_webapp_address"  # an extra of the Spark provider's connection


class TableLink(BaseOperatorLink):
    """The page of the operator's table."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page's address, with Airflow's own base URL."""
        return _page(operator)


class InstantLink(BaseOperatorLink):
    """The task's instant on its table's page; the page without an instant if the task made none."""

    name = "Instant"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page's address, with the instant of the task's result."""
        result = XCom.get_value(ti_key=ti_key, key="return_value")
        instant = result.get("instant") if isinstance(result, dict) else None
        return _page(operator, **({"instant": str(instant)} if instant else {}))


class SparkLink(BaseOperatorLink):
    """The page with Spark's applications, if the operator's configuration or its connection names it."""

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL of Spark's history server, or YARN's resource manager; empty if none is configured."""
        spark_conf: dict[str, Any] = getattr(operator, "spark_conf", None) or {}
        address = str(spark_conf.get(_HISTORY_SERVER) or _resource_manager(operator))
        return address if not address or "://" in address else f"http://{address}"


def _resource_manager(operator: BaseOperator) -> str:
    conn_id = getattr(operator, "spark_conn_id", None)
    if not conn_id:
        return ""
    try:
        return str(BaseHook.get_connection(conn_id).extra_dejson.get(_RESOURCE_MANAGER) or "")
    except AirflowNotFoundException:
        return ""


def _page(operator: BaseOperator, **more: str) -> str:
    at = {
        "metastore": getattr(operator, "metastore_conn_id", ""),
        "table": getattr(operator, "table", ""),
        **more,
    }
    base_url = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base_url}/plugin/{PAGE_ROUTE}?{urlencode(at)}"
