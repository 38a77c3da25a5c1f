"""A StatsD server that only listens, on UDP."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_LINE = re.compile(r"(?P<name>[^,:]+)(?P<tags>(,[^,:]+)*):(?P<value>[^|]+)\|(?P<kind>\w+)")


@dataclass
class StatsdServer:
    """The metrics that have arrived since the server listens.

    :param socket: a bound socket.
    """

    socket: socket.socket
    heard: list[tuple[str, dict[str, str], float, str]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def listen(self) -> None:
        """Read the metrics that have arrived, without waiting for others."""
        while True:
            try:
                packet = self.socket.recv(65_536).decode()
            except BlockingIOError:
                return
            for line in packet.splitlines():
                found = _LINE.fullmatch(line)
                assert found, line
                tags = dict(tag.split("=", 1) for tag in found["tags"].split(",") if tag)
                self.heard.append((found["name"], tags, float(found["value"]), found["kind"]))

    def total(self, name: str, kind: str = "c", **tags: str) -> float | None:
        """The sum of a metric's values with these tags, or a gauge's newest value; None without any."""
        self.listen()
        found = [
            value
            for each, told, value, kind_ in self.heard
            if (each, kind_) == (f"airflow.table_services.{name}", kind) and tags.items() <= told.items()
        ]
        return None if not found else found[-1] if kind == "g" else sum(found)


@contextmanager
def statsd_server() -> Iterator[StatsdServer]:
    """A server on a free port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        yield StatsdServer(bound)
