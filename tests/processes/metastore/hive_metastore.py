"""A real Hive Metastore 2.3 on Derby, from the jars in pyspark alone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

import tenacity

from airflow_provider.exceptions import MetastoreUnavailableError
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from dags_examples.demo.spark_server import java_environment
from tests.processes.servers import JARS, free_port

# The packages that Java 17 closes, and that a Hive of 2017 needs.
OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")


@contextmanager
def hive_metastore(folder: Path, *, txn_timeout: int | None = None) -> Iterator[int]:
    """A server that is ready; its port on the loopback interface.

    :param folder: the folder for its database, its warehouse and its log.
    :param txn_timeout: its ``hive.txn.timeout``, in seconds, which it checks every second. When None, the
        server never checks for timeouts.
    """
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/database;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "hive.in.test": "true",  # this also makes the tables of the transactions
    }
    if txn_timeout is not None:
        settings |= {
            "hive.txn.timeout": f"{txn_timeout}s",
            "hive.compactor.initiator.on": "true",  # this also starts the thread that checks for timeouts
            "hive.compactor.check.interval": "1d",
            "hive.timedout.txn.reaper.start": "1s",
            "hive.timedout.txn.reaper.interval": "1s",
        }
    java = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    port, log = free_port(), folder / "server.log"
    with log.open("w") as output:
        server = start_hive(port, folder, settings, java=java, output=output)
    try:
        wait_for_metastore(server, port, log)
        if txn_timeout is not None:
            _let_it_clean(port)
        yield port
    finally:
        server.kill()
        server.wait()


def start_hive(
    port: int,
    folder: Path,
    settings: Mapping[str, str],
    *,
    java: Iterable[str],
    output: TextIO,
    jars: Iterable[Path] = (),
) -> subprocess.Popen[bytes]:
    """Start a Hive Metastore, without waiting for it.

    :param port: the port on which it listens.
    :param folder: the folder for its warehouse, and its working folder.
    :param settings: Hive's settings; at least those of its database.
    :param java: options of its JVM.
    :param output: the file for its output.
    :param jars: further jars besides pyspark's.
    """
    settings = {
        "datanucleus.connectionPoolingType": "HikariCP",  # pyspark has no BoneCP
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "hive.async.log.enabled": "false",  # pyspark has no disruptor
        **settings,
    }
    command = ["java", *java, f"-Djava.io.tmpdir={folder}"]
    command += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", ":".join(map(str, (f"{JARS}/*", *jars)))]
    command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    command += [part for name, value in settings.items() for part in ("--hiveconf", f"{name}={value}")]
    return subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=java_environment()
    )


def _let_it_clean(port: int) -> None:
    """Wait for the first round of the compactor's initiator, which forgets aborted transactions.

    The round comes a second after the server is ready. Transactions that abort later stay until the test
    ends.
    """
    with closing(ThriftMetastore(f"thrift://127.0.0.1:{port}", timeout_seconds=30)) as metastore:
        txn_id = metastore.open_txn("nobody", "here")
        metastore.abort_txn(txn_id)
        deadline = time.monotonic() + 120
        while metastore.valid_txn_list().is_aborted(txn_id) and time.monotonic() < deadline:
            time.sleep(0.1)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(MetastoreUnavailableError),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(300),
    reraise=True,
)
def wait_for_metastore(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    if server.poll() is not None:
        raise RuntimeError(f"the Hive Metastore ended: {log.read_text()[-3000:]}")
    metastore = ThriftMetastore(f"thrift://127.0.0.1:{port}", timeout_seconds=30)
    metastore.list_databases()
    metastore.close()
