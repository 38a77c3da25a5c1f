"""A task's measurements reach real listeners through Airflow's own stats. No Spark runs."""

from __future__ import annotations

import time
from datetime import datetime

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from opentelemetry import trace
from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_provider.hooks.stats import task_stats
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.operators import CleanOperator
from airflow_provider.sensors import NotificationLogCatchupSensor
from airflow_provider.spark.job_answer import result_of_answer, success
from tests.airflow.flights import COLUMNS
from tests.airflow.reports.otlp import collector
from tests.airflow.reports.statsd import statsd_server

ABOUT = {"table": "lake.flights"}


@pytest.fixture
def statsd(monkeypatch):
    with statsd_server() as server:
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(server.port))
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
        yield server
    monkeypatch.undo()
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)


@pytest.fixture
def loaded(table):
    rows = [dict(zip(COLUMNS, (1, "mon", float(number)), strict=True)) for number in range(3)]
    for row in rows:
        ingest_arrow(table.location, pa.Table.from_pylist([row]))
    return table


def test_a_task_tells_its_commit_and_how_its_table_is(run_dag, statsd, metastore, loaded):
    metastore.register_consumer("replica", if_not_exists=True)
    metastore.create_database("later")
    with DAG("clean", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
        CleanOperator(task_id="clean", table="lake.flights", retained=1)
    assert run_dag(dag).state == "success"
    assert statsd.total("commits", action="clean", priority="100", **ABOUT) == 1
    assert statsd.total("publish", "ms", action="clean", **ABOUT) > 0
    assert statsd.total("timeline_length", "g", **ABOUT) == len(loaded.timeline().instants)
    assert statsd.total("oldest_pending_seconds", "g", **ABOUT) == 0
    assert statsd.total("consumer_lag", "g", consumer="replica") > 0


def test_they_come_to_opentelemetry_too(monkeypatch, loaded):
    with collector() as server:
        monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
        monkeypatch.setenv("AIRFLOW__METRICS__OTEL_HOST", "127.0.0.1")
        monkeypatch.setenv("AIRFLOW__METRICS__OTEL_PORT", str(server.server_port))
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
        CleanOperator(task_id="clean", table="lake.flights", retained=1).execute({})
        provider = get_meter_provider()
        assert provider.force_flush()
        assert server.point("commits", action="clean", priority="100", **ABOUT).as_int == 1
        assert server.point("publish", action="clean", **ABOUT).sum > 0
        assert server.point("timeline_length", **ABOUT).as_int == len(loaded.timeline().instants)
        provider.shutdown()
    monkeypatch.delenv("AIRFLOW__METRICS__OTEL_ON")
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)


def test_what_a_job_in_another_process_measured_comes_with_its_answer(statsd, loaded):
    measured = {"kind": "counter", "name": "rows", "value": 7, "tags": {"table": loaded.location}}
    with task_stats(CleanOperator(task_id="job", table="lake.flights")):
        result_of_answer({**success({}), "measured": [measured]})
    assert statsd.total("rows", **ABOUT) == 7


@pytest.fixture(scope="module")
def spans():
    """The spans that a tracer of this process exports; a process has one provider."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_timers_are_spans_of_the_tasks_trace(spans, loaded):
    hour_ago = time.time() - 3600
    elsewhere = {"kind": "timer", "name": "lock_wait", "value": 2.0, "tags": {}, "at": hour_ago}
    with trace.get_tracer("airflow").start_as_current_span("worker.clean"):
        task = CleanOperator(task_id="clean", table="lake.flights", retained=1)
        task.execute({})
        with task_stats(task):
            result_of_answer({**success({}), "measured": [elsewhere]})
    *inner, outer = spans.get_finished_spans()
    by_name = {span.name: span for span in inner}
    assert {span.parent.span_id for span in inner} == {outer.context.span_id}
    publish, waited = by_name["table_services.publish"], by_name["table_services.lock_wait"]
    assert publish.attributes["table_services.table"] == "lake.flights"
    assert outer.start_time <= publish.start_time <= publish.end_time <= outer.end_time
    assert (waited.end_time - waited.start_time, waited.end_time) == (2 * 10**9, int(hour_ago * 1e9))
    assert "table_services.commits" in [event.name for event in outer.events]


def test_a_sensor_tells_how_far_consumers_are(statsd, metastore):
    metastore.register_consumer("replica", if_not_exists=True)
    metastore.create_database("lake")
    sensor = NotificationLogCatchupSensor(task_id="wait", until=metastore.current_event_id())
    assert not sensor.poke({}).is_done
    assert statsd.total("consumer_lag", "g", consumer="replica") == 1


def test_no_task_fails_because_of_its_metrics(statsd, metastore, tmp_path):
    with pytest.raises(Exception, match="NotATableError"):
        CleanOperator(task_id="clean", table=str(tmp_path)).execute({})
    assert statsd.total("timeline_length", "g") is None


def test_without_a_metrics_backend_nothing_is_looked_at(loaded, monkeypatch):
    def looked_at(*_: object) -> None:
        raise AssertionError("metrics are off")

    monkeypatch.setattr("airflow_provider.hooks.stats.pending_instants", looked_at)
    CleanOperator(task_id="clean", table="lake.flights").execute({})
