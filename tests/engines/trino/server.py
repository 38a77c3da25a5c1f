"""A real Trino 476 with its hive, iceberg and hudi connectors on one metastore.

Its archive (821 MB) comes from Maven Central. It needs a Java 24 or later: ``JAVA_HOME``, or one in
``/usr/lib/jvm``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tenacity

from dags_examples.demo.spark_server import java_environment
from tests.engines.maven_central import Artifact, jdk, resolve
from tests.processes.servers import free_port

VERSION = "476"
SERVER = (Artifact(f"io.trino:trino-server:{VERSION}", kind="tar.gz"),)
_PLUGINS = frozenset({"hive", "hudi", "iceberg"})
_START_SECONDS = 600

_JVM = """\
-server
-Xmx1200M
-XX:+UseSerialGC
-XX:ReservedCodeCacheSize=256M
-Djdk.attach.allowAttachSelf=true
-XX:+EnableDynamicAgentLoading
--enable-native-access=ALL-UNNAMED
-Duser.timezone=UTC
"""
_HIVE = """\
hive.non-managed-table-writes-enabled=true
hive.hive-views.enabled=true
hive.storage-format=PARQUET
hive.allow-register-partition-procedure=true
"""


class TrinoError(Exception):
    """Raised when a statement fails, with Trino's message."""


class NoNodesError(TrinoError):
    """Raised when Trino has not begun a statement, because it has no worker at this moment."""


class Trino:
    """A client of a Trino on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(NoNodesError),
        wait=tenacity.wait_fixed(1),
        stop=tenacity.stop_after_delay(120),
        reraise=True,
    )
    def rows(self, statement: str) -> list[Any]:
        """Run a statement; on a busy machine Trino loses its only worker for moments.

        :raises TrinoError: when the statement fails.
        """
        answer = self._call(f"http://127.0.0.1:{self._port}/v1/statement", statement.encode())
        rows: list[Any] = []
        while True:
            rows += answer.get("data") or []
            if "error" in answer:
                message = str(answer["error"].get("message"))
                kind = NoNodesError if message.startswith("No nodes available") else TrinoError
                raise kind(f"{statement}: {message}")
            if "nextUri" not in answer:
                return rows
            answer = self._call(answer["nextUri"])

    def _call(self, url: str, data: bytes | None = None) -> Any:
        request = urllib.request.Request(url, data=data, headers={"X-Trino-User": "me"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)


@contextmanager
def trino(folder: Path, metastore: str) -> Iterator[Trino]:
    """A Trino that is ready, with catalogs ``hive``, ``iceberg`` and ``hudi``.

    :param folder: the folder for its settings, its data and its log.
    :param metastore: URL of the metastore.
    """
    java = jdk(24)
    server = resolve("trino", SERVER)
    for plugin in (server / "plugin").iterdir():
        if plugin.name not in _PLUGINS:
            shutil.rmtree(plugin)  # Trino would load each of fifty plugins
    port, settings = free_port(), folder / "etc"
    (settings / "catalog").mkdir(parents=True)
    (settings / "jvm.config").write_text(_JVM)
    (settings / "node.properties").write_text(
        f"node.environment=test\nnode.id=test\nnode.data-dir={folder}/data\n"
    )
    (settings / "config.properties").write_text(
        "coordinator=true\nnode-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\n"
        "query.max-memory-per-node=300MB\nmemory.heap-headroom-per-node=300MB\n"
    )
    for name, more in (("hive", _HIVE), ("iceberg", ""), ("hudi", "")):
        (settings / "catalog" / f"{name}.properties").write_text(
            f"connector.name={name}\nhive.metastore.uri={metastore}\nfs.hadoop.enabled=true\n{more}"
        )
    environment = java_environment() | {"JAVA_HOME": str(java), "JAVA_TOOL_OPTIONS": ""}
    environment["PATH"] = f"{java}/bin:{environment['PATH']}"
    launcher = server / "bin" / "launcher"
    log = folder / "trino.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [launcher, "--etc-dir", settings, "--data-dir", folder / "data", "run"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        until = time.monotonic() + _START_SECONDS
        while "SERVER STARTED" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Trino does not serve: {log.read_text()[-3000:]}")
            time.sleep(0.5)
        yield Trino(port)
    finally:
        process.kill()
        process.wait()
