"""The engine's measurements in the trace of a task, if Airflow's tracing is on (``[traces] otel_on``)."""

from __future__ import annotations

from opentelemetry import context, trace

from airflow_provider.metrics import Listener, Measurement

_PREFIX = "table_services."
_tracer = trace.get_tracer("airflow_provider")


def told_to_trace() -> Listener | None:
    """A listener that adds measurements to the current span, which is Airflow's span of the task.

    A timer becomes a span below the task's span, with the time of the measurement, also if another process
    measured it. A counter becomes an event of the task's span. Tags become attributes.

    :return: None if Airflow does not trace the task.
    """
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    task = context.get_current()

    def tell(measured: Measurement) -> None:
        name, end = _PREFIX + measured.name, int(measured.at * 1e9)
        attributes = {_PREFIX + key: value for key, value in measured.tags.items()}
        if measured.kind == "timer":
            start = end - int(measured.value * 1e9)
            _tracer.start_span(name, task, attributes=attributes, start_time=start).end(end)
        elif measured.kind == "counter":
            span.add_event(name, {**attributes, f"{_PREFIX}value": measured.value}, end)

    return tell
