"""One Spark Connect server for all workers of a test run; the first test that needs it starts it."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dags_examples.demo.spark_server import spark_connect_server
from tests.airflow.processes import until


@contextmanager
def shared_spark(folder: Path) -> Iterator[int]:
    """Use the server of the test run; return its port.

    Each worker that uses the server holds a shared lock. The lock ends with the worker's process, also when
    that is killed. When no worker holds the lock, the server ends.

    :param folder: the folder that all workers share.
    """
    port = folder / "spark.port"
    with (folder / "spark.users").open("w") as users:
        with (folder / "spark.starting").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not port.exists():
                program = [sys.executable, "-m", __name__, str(folder)]
                server = os.spawnv(os.P_NOWAIT, sys.executable, program)
                until(lambda: port.exists() or os.waitpid(server, os.WNOHANG) != (0, 0))
        yield int(port.read_text())


def serve(folder: Path) -> None:
    """Run the server in this process."""
    os.setsid()  # an interrupt of the worker that started the server must not end it
    with spark_connect_server(folder / "spark.log") as port:
        (folder / "spark.new_port").write_text(str(port))
        (folder / "spark.new_port").rename(folder / "spark.port")
        with (folder / "spark.users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "spark.port").unlink()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
