"""An S3 endpoint over HTTP with atomic conditional writes: ``python -m tests.processes.storage.s3_server``.

In the buckets ``ignores-if-match`` and ``ignores-if-none-match`` the server ignores that header.

Moto checks the condition and writes the object in two steps. With threads switching every microsecond, 5 of
100 races of eight contenders for ``If-Match`` had two winners; one request at a time has one.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def _one_at_a_time(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        for header in ("if-match", "if-none-match"):
            if environ["PATH_INFO"].startswith(f"/ignores-{header}/"):
                environ.pop(f"HTTP_{header.upper().replace('-', '_')}", None)
        with lock:
            return list(application(environ, start_response))

    return serve


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
