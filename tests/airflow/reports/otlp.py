"""An OpenTelemetry collector that receives metrics by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector(ThreadingHTTPServer):
    """A collector on a free port of this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: dict[str, list] = {}

    def take(self, content: bytes) -> None:
        for of_resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    self.heard[metric.name] = list(getattr(metric, kind).data_points)

    def point(self, name: str, **tags: str):
        """The newest data point of a metric that has these attributes, and maybe others."""
        for point in self.heard[f"airflow.table_services.{name}"]:
            told = {each.key: each.value.string_value for each in point.attributes}
            if tags.items() <= told.items():
                return point
        raise AssertionError(f"{name} {tags} did not come: {sorted(self.heard)}")


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.take(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    with Collector() as server:
        listening = threading.Thread(target=server.serve_forever, daemon=True)
        listening.start()
        yield server
        server.shutdown()
        listening.join()
