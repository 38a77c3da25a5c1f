"""A process that contends for a lock and obeys the test's commands."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import TableServiceError, from_dict, to_dict
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.storage.storage import Storage


class Contender:
    """The test's end of such a process; its methods raise the process's errors.

    :param config: see :func:`open_lock`.
    :param root: the table's location.
    :param options: options of the table's storage.
    """

    def __init__(
        self, processes: ForkServerContext, config: Mapping[str, Any], root: str, options: Mapping[str, Any]
    ) -> None:
        self._pipe, far = processes.Pipe()
        self._process = processes.Process(target=_obey, args=(far, dict(config), root, dict(options)))
        self._process.start()
        far.close()

    def acquire(self, timeout: float | None = None) -> int:
        """Acquire the lock; return the fencing token."""
        return int(self.ask("acquire", timeout))

    def release(self) -> None:
        self.ask("release")

    def is_held(self) -> bool:
        return bool(self.ask("is_held"))

    def ask(self, *command: Any) -> Any:
        self.tell(*command)
        return self.answer()

    def tell(self, *command: Any) -> None:
        """Send a command without waiting for the answer."""
        self._pipe.send(command)

    def answer(self, timeout: float = 300) -> Any:
        assert self._pipe.poll(timeout), f"no answer in {timeout} s"
        worked, answer = self._pipe.recv()
        if not worked:
            raise from_dict(answer)
        return answer

    def pause(self) -> None:
        os.kill(self._process.pid or 0, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid or 0, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _obey(pipe: Connection, config: dict[str, Any], root: str, options: dict[str, Any]) -> None:
    lock = open_lock(config, Storage(root, options))
    while True:
        try:
            command, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, _do(lock, command, arguments)))
        except TableServiceError as error:
            pipe.send((False, to_dict(error)))


def _do(lock: LockProvider, command: str, arguments: list[Any]) -> Any:
    if command == "acquire":
        lock.acquire(*arguments)
        return lock.fencing_token
    if command == "append_tokens":
        _append_tokens(lock, *arguments)
        return None
    return getattr(lock, command)(*arguments)


def _append_tokens(lock: LockProvider, path: Path, times: int, seconds: float = 0.0) -> None:
    """Read a file and write it again with the fencing token added, each time under the lock.

    :param seconds: the duration of one such step; a second holder during it would make a token disappear.
    """
    for _ in range(times):
        with lock:
            found = path.read_text()
            time.sleep(seconds)
            path.write_text(f"{found}{lock.fencing_token}\n")
