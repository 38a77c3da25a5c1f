"""All table services of one table, as a task group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import TaskGroup, chain

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.operators import (
    ArchiveTimelineOperator,
    BuildIndexOperator,
    CleanOperator,
    ClusteringOperator,
    CompactionOperator,
)
from airflow_provider.operators._base import TableOperator

_ON_SPARK: dict[str, type[TableOperator]] = {"index": BuildIndexOperator, "cluster": ClusteringOperator}
_WITHOUT_SPARK: dict[str, type[TableOperator]] = {
    "compact": CompactionOperator,
    "clean": CleanOperator,
    "archive": ArchiveTimelineOperator,
}

Service = bool | Mapping[str, Any]


def table_services(
    table: str,
    *,
    group_id: str = "table_services",
    index: Service = True,
    cluster: Service = True,
    compact: Service = True,
    clean: Service = True,
    archive: Service = True,
    spark_conn_id: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    spark_submit_options: Mapping[str, Any] | None = None,
    **shared: Any,
) -> TaskGroup:
    """A task for each table service of a table, one after the other.

    ::

        with DAG("flights_services", schedule="@hourly", max_active_runs=1):
            table_services("lake.flights", cluster={"sort_by": ["dest"]}, clean={"retained": 20})

    Each service uses the table's own options (docs/configuration.md), unless the group's arguments override
    them, and does nothing if nothing is due. Writers may run beside all services: a clustering has the
    priority ``table_service``, and yields to ingestion and backfills.

    The group has two rows of tasks, so that the services without Spark continue when Spark fails: ``index``,
    then ``cluster``; and beside them ``compact``, ``clean``, ``archive``.

    :param table: ``database.table``, or the table's path or URL.
    :param group_id: the group's name; the tasks are ``<group_id>.index`` and so on.
    :param index: whether to build the indexes that the table's options enable, or arguments of
        :class:`~airflow_provider.operators.BuildIndexOperator`.
    :param cluster: whether to cluster, or arguments of
        :class:`~airflow_provider.operators.ClusteringOperator`.
    :param compact: whether to compact a merge-on-read table and the metadata table, or arguments of
        :class:`~airflow_provider.operators.CompactionOperator`.
    :param clean: whether to clean, or arguments of :class:`~airflow_provider.operators.CleanOperator`.
    :param archive: whether to archive, or arguments of
        :class:`~airflow_provider.operators.ArchiveTimelineOperator`.
    :param spark_conn_id: argument of ``index`` and ``cluster``; see
        :class:`~airflow_provider.operators.BuildIndexOperator`.
    :param spark_conf: argument of the same two tasks.
    :param spark_submit_options: argument of the same two tasks.
    :param shared: arguments of all tasks, such as ``metastore_conn_id``, ``retries`` or ``pool``.
    :return: the group, to be put before or after other tasks.
    :raises InvalidInputError: when every service is left out, or a service is neither a bool nor arguments.
    """
    given = {"index": index, "cluster": cluster, "compact": compact, "clean": clean, "archive": archive}
    arguments = {name: _arguments(table, name, each) for name, each in given.items() if each is not False}
    if not arguments:
        raise InvalidInputError(f"table_services({table!r}): every service is left out; leave one in")
    on_spark = {
        "spark_conn_id": spark_conn_id,
        "spark_conf": spark_conf,
        "spark_submit_options": spark_submit_options,
    }
    with TaskGroup(group_id) as group:
        for row, of_row in ((_ON_SPARK, {**shared, **on_spark}), (_WITHOUT_SPARK, shared)):
            wanted = [name for name in row if name in arguments]
            chain(*(row[name](task_id=name, table=table, **{**of_row, **arguments[name]}) for name in wanted))
    return group


def _arguments(table: str, name: str, service: object) -> Mapping[str, Any]:
    if service is True:
        return {}
    if not isinstance(service, Mapping):
        operator = (_ON_SPARK | _WITHOUT_SPARK)[name].__name__
        raise InvalidInputError(
            f"table_services({table!r}): {name}={service!r}: give True, False, or a mapping with arguments "
            f"of {operator}"
        )
    return service
