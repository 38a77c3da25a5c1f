"""Waiting in the triggerer for a Spark job whose driver runs on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider.concurrency import pending_instants, settle_operation
from airflow_provider.exceptions import MetastoreError
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.spark_cluster import SparkCluster, spark_cluster
from airflow_provider.hooks.table import TableHook
from airflow_provider.metastore import AnyMetastore, open_metastore
from airflow_provider.spark.job_answer import read_answer
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.triggers.polling import PollingTrigger, Progress, while_briefly_unavailable

if TYPE_CHECKING:
    from airflow.sdk import Connection

log = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 30.0
# A restarted manager may need a while until it knows its drivers again.
_UNKNOWN_SECONDS = 300.0


def kill_driver(connection: Connection, submission: str) -> None:
    """End a driver, if its cluster's manager can be reached; the caller rolls its write back in any case.

    :param connection: of type ``spark``.
    :param submission: the id that the cluster's manager gave to the driver.
    """
    try:
        _cluster(connection).kill(submission)
        log.info("killed driver %s", submission)
    except OSError as error:
        log.warning("driver %s cannot be killed; its write is rolled back: %s", submission, error)


def _cluster(connection: Connection | None) -> SparkCluster:
    found = None if connection is None else spark_cluster(connection)
    if found is None:
        raise OSError("its connection names no manager of a cluster any more")
    return found


class SparkJobTrigger(PollingTrigger):
    """Fires when a job that spark-submit has left on a cluster has ended, successful or not.

    A job that ends leaves its answer in the table's storage. If a job dies without an answer, the cluster's
    manager says so. If the manager no longer knows the driver, the job counts as ended when no write of its
    operation has a fresh heartbeat. Meanwhile the trigger keeps the write's transaction alive.

    :param location: absolute path or URL of the table.
    :param operation_key: the operation key of the job's write.
    :param job_id: the id that names the job's answer.
    :param submission: the id that the cluster's manager gave to the driver.
    :param spark_conn_id: connection of type ``spark``.
    :param txn_id: the write's own transaction; None without one.
    :param metastore_conn_id: connection of that transaction's metastore.
    :param storage_conn_id: see :class:`~airflow_provider.hooks.table.TableHook`.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; then the event's status is ``timeout``.
    """

    def __init__(
        self,
        *,
        location: str,
        operation_key: str,
        job_id: str,
        submission: str,
        spark_conn_id: str,
        txn_id: int | None,
        metastore_conn_id: str,
        storage_conn_id: str | None,
        poke_interval: float,
        deadline: float,
    ) -> None:
        super().__init__(poke_interval=poke_interval, deadline=deadline)
        self.location = location
        self.operation_key = operation_key
        self.job_id = job_id
        self.submission = submission
        self.spark_conn_id = spark_conn_id
        self.txn_id = txn_id
        self.metastore_conn_id = metastore_conn_id
        self.storage_conn_id = storage_conn_id
        self._connection: Connection | None = None
        self._metastore_url = ""
        self._storage_options: dict[str, Any] = {}
        self._opened: tuple[HudiTable, AnyMetastore | None] | None = None
        self._beaten = 0.0
        self._known = time.monotonic()

    def arguments(self) -> dict[str, Any]:
        """See :meth:`PollingTrigger.arguments`."""
        return {
            "location": self.location,
            "operation_key": self.operation_key,
            "job_id": self.job_id,
            "submission": self.submission,
            "spark_conn_id": self.spark_conn_id,
            "txn_id": self.txn_id,
            "metastore_conn_id": self.metastore_conn_id,
            "storage_conn_id": self.storage_conn_id,
        }

    async def connect(self) -> None:
        """See :meth:`PollingTrigger.connect`."""
        self._storage_options = await TableHook(storage_conn_id=self.storage_conn_id).astorage_options()
        self._connection = await BaseHook.aget_connection(self.spark_conn_id)
        if self.txn_id is not None:
            self._metastore_url = await MetastoreHook(self.metastore_conn_id).aget_url()

    @while_briefly_unavailable
    def look(self) -> Progress:
        """See :meth:`PollingTrigger.look`."""
        table, metastore = self._opened = self._opened or self._open()
        self._keep_alive(metastore)
        if self._has_answered(table):
            return Progress(result={"state": "has answered"})
        try:
            state, has_ended = _cluster(self._connection).state(self.submission)
        except OSError as error:
            return self._look_without_manager(table, error)
        self._known = time.monotonic()
        if has_ended:
            return Progress(result={"state": state})
        return Progress((f"driver {self.submission} of job {self.job_id}: {state}",))

    async def on_kill(self) -> None:
        """End the driver, and roll its write back, because a person has ended or cleared the task.

        Airflow does not call this when the triggerer ends, nor after a timeout.
        """
        await self.connect()
        await asyncio.to_thread(self._kill)

    def _look_without_manager(self, table: HudiTable, error: OSError) -> Progress:
        alive = any(
            each.operation_key == self.operation_key and each.alive for each in pending_instants(table)
        )
        if alive or time.monotonic() - self._known < _UNKNOWN_SECONDS:
            return Progress((f"driver {self.submission} of job {self.job_id}, which is not known: {error}",))
        return Progress(result={"state": f"not known: {error}"})

    def _has_answered(self, table: HudiTable) -> bool:
        return read_answer(table.storage, self.job_id) is not None

    def _keep_alive(self, metastore: AnyMetastore | None) -> None:
        if metastore is None or self.txn_id is None or time.monotonic() - self._beaten < _HEARTBEAT_SECONDS:
            return
        # The task finds an aborted transaction when it comes back.
        with contextlib.suppress(MetastoreError):
            metastore.heartbeat_txn(self.txn_id)
        self._beaten = time.monotonic()

    def _kill(self) -> None:
        if self._connection is not None:
            kill_driver(self._connection, self.submission)
        table, metastore = self._open()
        reason = "a person has ended its task"
        if settle_operation(table, self.operation_key, reason=reason) is None and metastore is not None:
            with contextlib.suppress(MetastoreError):  # the transaction times out
                metastore.abort_txn(self.txn_id or 0)

    def _open(self) -> tuple[HudiTable, AnyMetastore | None]:
        table = HudiTable.open(self.location, self._storage_options)
        return table, open_metastore(self._metastore_url) if self._metastore_url else None
