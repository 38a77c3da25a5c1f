"""Our metastore as a service, started by its command, as people start it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class MetastoreService:
    """A running service.

    :param port: the service's port on the loopback interface.
    :param process: the command's process.
    :param log: the file with its log.
    """

    port: int
    process: subprocess.Popen[str]
    log: Path

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.terminate()
        return self.process.wait(120)


@contextmanager
def metastore_service(folder: Path, url: str, *options: str, port: int = 0) -> Iterator[MetastoreService]:
    """A service that is ready.

    :param folder: the folder for its log.
    :param options: further options of ``table-services metastore serve``.
    """
    command = [str(Path(sys.executable).with_name("table-services")), "metastore", "serve"]
    command += ["--db", url, "--port", str(port), *options]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "metastore.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        listens = re.match(r"serving thrift://[\d.]+:(\d+) ", line)
        if listens is None:
            raise RuntimeError(f"the metastore did not start: {line}{log.read_text()[-3000:]}")
        yield MetastoreService(int(listens[1]), process, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
