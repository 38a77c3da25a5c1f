"""The engine's measurements in Airflow's stats: StatsD, Datadog or OpenTelemetry."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from airflow.sdk import conf
from airflow.sdk.observability import stats

from airflow_provider import metrics
from airflow_provider.concurrency import pending_instants
from airflow_provider.hooks.metastore import MetastoreHook
from airflow_provider.hooks.table import TableHook
from airflow_provider.hooks.traces import told_to_trace
from airflow_provider.managed import ResolvedTable
from airflow_provider.metastore import AnyMetastore
from airflow_provider.metrics import Measurement
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import parse_time, timeline_zone

log = logging.getLogger(__name__)

PREFIX = "table_services."
"""The beginning of the names of all metrics of this package."""

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_NOT_IN_A_TAG = re.compile(r"[^a-zA-Z0-9_./-]")  # refused in tags by Airflow's StatsD


def is_on() -> bool:
    """Whether Airflow's configuration sends metrics."""
    return any(conf.getboolean("metrics", each, fallback=False) for each in _SWITCHES)


def emit(measurement: Measurement) -> None:
    """Send one measurement to Airflow's stats.

    :param measurement: a measurement of the engine.
    """
    name = PREFIX + measurement.name
    tags = {key: _NOT_IN_A_TAG.sub("_", value) for key, value in measurement.tags.items()}
    if measurement.kind == "counter":
        stats.incr(name, int(measurement.value), tags=tags)
    elif measurement.kind == "timer":
        stats.timing(name, timedelta(seconds=measurement.value), tags=tags)
    else:
        stats.gauge(name, measurement.value, tags=tags)


def consumer_lags(metastore: AnyMetastore) -> None:
    """Emit for each consumer of the notification log the number of events that it is behind.

    :param metastore: the metastore that keeps the log.
    """
    if not is_on():
        return
    head = metastore.current_event_id()
    for consumer in metastore.consumers():
        lag = max(0, head - consumer.event_id)
        emit(Measurement("gauge", "consumer_lag", lag, {"consumer": consumer.name}))


@contextmanager
def task_stats(task: Any) -> Iterator[None]:
    """Emit a task's measurements, as metrics and in its trace, and the state of its table at the end.

    :param task: an operator or sensor; its table is the one in its argument ``table``, if it has one.
    """
    listeners = [each for each in (emit if is_on() else None, told_to_trace()) if each is not None]
    own = _OwnTable(task)

    def tell(measured: Measurement) -> None:
        for listener in listeners:
            listener(own.named(measured))

    try:
        with metrics.listening(tell) if listeners else nullcontext():
            yield
    finally:
        if is_on():
            own.tell_state()


class _OwnTable:
    """The table of a task; measurements contain the name by which the task names it."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self._given = getattr(task, "table", None)

    @cached_property
    def _hook(self) -> TableHook:
        return TableHook(self._task.metastore_conn_id, self._task.storage_conn_id)

    @cached_property
    def _resolved(self) -> ResolvedTable | None:
        try:
            return self._hook.resolve(self._given) if self._given else None
        except Exception as error:  # noqa: BLE001 - no task fails because of its metrics
            log.debug("table %s is not found for metrics: %s", self._given, error)
            return None

    def named(self, measured: Measurement) -> Measurement:
        if self._resolved is None or measured.tags.get("table") != self._resolved.location:
            return measured
        tags = {**measured.tags, "table": self._resolved.given}
        return replace(measured, tags=tags)

    def tell_state(self) -> None:
        if self._resolved is None:
            return
        try:
            table = HudiTable.open(self._resolved.location, self._hook.storage_options())
            tags = {"table": self._resolved.given}
            emit(Measurement("gauge", "timeline_length", len(table.timeline().instants), tags))
            emit(Measurement("gauge", "oldest_pending_seconds", _oldest_pending_seconds(table), tags))
            if self._resolved.is_registered:
                consumer_lags(MetastoreHook(self._task.metastore_conn_id).get_metastore())
        except Exception as error:  # noqa: BLE001 - no task fails because of its metrics
            log.debug("table %s cannot be looked at for metrics: %s", self._given, error)


def _oldest_pending_seconds(table: HudiTable) -> float:
    pending = pending_instants(table)
    if not pending:
        return 0.0
    requested = parse_time(pending[0].instant, timeline_zone(table.storage))
    return max(0.0, (datetime.now(UTC) - requested).total_seconds())
