"""A real Hive Metastore 2.3 on Derby, out of the jars in pyspark; the script that starts it is not in this
repository, as the data that the JVM Hudi wrote is not."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import tenacity

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore.thrift.client import ThriftMetastore
from dags_examples.demo.spark_server import java_environment
from tests.processes.servers import JARS, free_port

_SCRIPT = Path(__file__).parents[3] / "shared" / "tools" / "hms" / "hms_derby.sh"

LOCK_TIMEOUT_SECONDS = 4
"""Its ``hive.txn.timeout``; looked after every second."""


@contextmanager
def hive_metastore(folder: Path) -> Iterator[int]:
    """A server that serves already; its port on the loopback interface."""
    if not _SCRIPT.is_file():
        pytest.skip(f"the script that starts a Hive Metastore is not in {_SCRIPT.parent}")
    port = free_port()
    settings = {
        "hive.txn.timeout": f"{LOCK_TIMEOUT_SECONDS}s",
        "hive.compactor.initiator.on": "true",  # starts the one who looks after timeouts, too
        "hive.timedout.txn.reaper.start": "1s",
        "hive.timedout.txn.reaper.interval": "1s",
        "java.io.tmpdir": str(folder),
    }
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *(f"-D{n}={v}" for n, v in settings.items())]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            ["bash", str(_SCRIPT), str(port), str(folder / "database"), str(folder / "warehouse")],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**(java_environment() or os.environ), "JARS": str(JARS), "JOPTS": " ".join(options)},
        )
    try:
        _wait(server, port, folder / "server.log")
        _let_it_clean(port)
        yield port
    finally:
        server.kill()
        server.wait()


def _let_it_clean(port: int) -> None:
    """Wait for the first round of what runs beside the server: it forgets aborted transactions, once.

    That is a second after it serves; afterwards they are there for as long as any test looks.
    """
    with closing(ThriftMetastore(f"thrift://127.0.0.1:{port}", timeout_seconds=30)) as metastore:
        txn_id = metastore.open_txn("nobody", "here")
        metastore.abort_txn(txn_id)
        deadline = time.monotonic() + 5
        while metastore.valid_txn_list().is_aborted(txn_id) and time.monotonic() < deadline:
            time.sleep(0.1)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(MetastoreUnavailableError),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(90),
    reraise=True,
)
def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    if server.poll() is not None:
        raise RuntimeError(f"the Hive Metastore ended: {log.read_text()[-3000:]}")
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{port}", timeout_seconds=30)
    metastore.list_databases()
    metastore.close()
