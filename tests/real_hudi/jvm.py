"""The test's end of a JVM with Hudi."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import tenacity

from tests.real_hudi.environment import HUDI, real_hudi, server_environment

SERVER = Path(__file__).with_name("spark_server.py")
TIME_ZONE = "user.timezone"
"""The setting for the JVM's time zone, which is UTC otherwise."""


class HudiError(Exception):
    """An error of Spark, or of Hudi in it."""


class Session:
    """A Spark session in a JVM with Hudi.

    :param socket: the socket on which the server listens.
    """

    def __init__(self, socket: Path) -> None:
        self._connection = Client(str(socket), "AF_UNIX")

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Return the rows of a statement.

        :raises HudiError: when Spark refuses the statement, or fails.
        """
        rows: list[dict[str, Any]] = self._call("sql", text)
        return rows

    def read(
        self,
        location: str,
        options: Mapping[str, str] | None = None,
        *,
        where: str | None = None,
        metadata: bool = True,
    ) -> list[dict[str, Any]]:
        """Return the rows of a table, with meta columns.

        :param options: Hudi's options.
        :param where: a condition in SQL; Hudi skips files by the statistics in the metadata table.
        :param metadata: whether Hudi uses the metadata table.
        :raises HudiError: as :meth:`sql`.
        """
        reader = {
            "hoodie.metadata.enable": str(metadata).lower(),
            "hoodie.enable.data.skipping": "true",
            **(options or {}),
        }
        rows: list[dict[str, Any]] = self._call("read", location, reader, where)
        return rows

    def write(
        self,
        location: str,
        rows: Sequence[Mapping[str, Any]],
        columns: str,
        options: Mapping[str, str],
        mode: str = "append",
    ) -> None:
        """Write rows into a table by Hudi's data source.

        :param columns: names and types as in DDL: ``id string, v bigint``.
        :param options: Hudi's options.
        :param mode: Spark's mode; ``overwrite`` makes the table anew.
        :raises HudiError: as :meth:`sql`.
        """
        names = [column.split()[0] for column in columns.split(", ")]
        self._call(
            "write", location, [tuple(row[n] for n in names) for row in rows], columns, dict(options), mode
        )

    def run(self, source: str, **names: Any) -> Any:
        """Run Python code in the server, with ``spark`` and ``names`` in scope; return its ``result``.

        :raises HudiError: as :meth:`sql`.
        """
        return self._call("run", source, **names)

    def close(self) -> None:
        self._connection.close()

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        self._connection.send((name, arguments, named))
        succeeded, answer = self._connection.recv()
        if not succeeded:
            raise HudiError(_shortened(answer))
        return answer


class Jvm:
    """A process with Spark 3.5 and the JVM's Hudi.

    :param folder: a folder of its own, for its socket, its log and Spark's files.
    :param version: Hudi's version.
    :param settings: further settings of Spark, and :data:`TIME_ZONE`.
    :raises NotReachedError: when Hudi is not on this machine and cannot be downloaded.
    """

    def __init__(self, folder: Path, version: str = HUDI, settings: Mapping[str, str] | None = None) -> None:
        found = real_hudi(version)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        self._socket = folder / "socket"
        command = [found.python, SERVER, self._socket, found.bundle, folder]
        more = [f"{name}={value}" for name, value in (settings or {}).items()]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*map(str, command), *more],
                stdin=subprocess.PIPE,  # the pipe closes when this process ends, also after a kill
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=server_environment(),
                start_new_session=True,  # Python and its JVM get a signal together
            )

    def wait(self) -> None:
        """Wait until the server answers calls."""
        patiently = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(OSError), wait=tenacity.wait_fixed(0.1), reraise=True
        )
        patiently(self._reach)

    def session(self) -> Session:
        """A new Spark session, whose settings affect no other session."""
        return Session(self._socket)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the JVM and its server."""
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, also in the middle of a write."""
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()

    def _reach(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the JVM with the real Hudi has ended: {self._log.read_text()[-3000:]}")
        self.session().close()


@contextmanager
def running(folder: Path, version: str = HUDI, settings: Mapping[str, str] | None = None) -> Iterator[Jvm]:
    """A JVM that is ready; see :class:`Jvm`."""
    jvm = Jvm(folder, version, settings)
    try:
        jvm.wait()
        yield jvm
    finally:
        jvm.kill()


def _shortened(said: str) -> str:
    """The error's text without the lines of Java's stack trace."""
    lines = [line.strip() for line in said.splitlines() if not line.strip().startswith(("at ", "..."))]
    return "\n".join(dict.fromkeys(line for line in lines if line))[:4000]
