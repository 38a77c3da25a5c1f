"""A call that is repeated as long as something lives, such as the renewal of a lease."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable


class Recurring:
    """Calls a function again and again, from a thread of its own, until stopped.

    The thread starts when the first call is due. Most locks and most small commits end before that. Starting
    a thread and waiting for its end takes two turns of the scheduler. On a busy machine this is longer than
    all the work under a table lock.

    :param call: the function; it returns False to end the repetition.
    :param interval: seconds before each call.
    :param name: the thread's name.
    """

    def __init__(self, call: Callable[[], bool], interval: float, name: str) -> None:
        self._call = call
        self._interval = interval
        self._name = name
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        _starter.add(self, time.monotonic() + interval)

    def stop(self, timeout: float | None = None) -> None:
        """Stop, and wait until no call is in progress.

        :param timeout: seconds to wait for a call in progress; None waits for its end.
        """
        self._stopped.set()
        _starter.remove(self)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        self._call = _nothing  # its owner, which has it, is freed at once, and not by the garbage collector

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set() and self._call():
            self._stopped.wait(self._interval)


def _nothing() -> bool:
    return False


class _Starter:
    """The one thread of a process that starts each :class:`Recurring` whose first call is due."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Recurring, float] = {}
        self._wakes_at = -math.inf
        self._thread: threading.Thread | None = None

    def add(self, recurring: Recurring, due: float) -> None:
        with self._changed:
            self._due[recurring] = due
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="recurring", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._changed.notify()

    def remove(self, recurring: Recurring) -> None:
        with self._changed:
            self._due.pop(recurring, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for recurring in [each for each, due in self._due.items() if due <= now]:
                    del self._due[recurring]
                    recurring._start()
                self._wakes_at = min(self._due.values(), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else max(0.0, self._wakes_at - now))


_starter = _Starter()


def _after_fork() -> None:
    global _starter
    _starter = _Starter()  # no thread survives a fork, and its lock may be held


os.register_at_fork(after_in_child=_after_fork)
