"""Repeated calls from a thread that starts when the first call is due."""

from __future__ import annotations

import itertools
import os
import threading
import time

from airflow_provider.locks.recurring import Recurring


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_it_is_called_again_and_again_until_it_says_no() -> None:
    calls, ended = [], threading.Event()

    def call() -> bool:
        calls.append(time.monotonic())
        if len(calls) == 3:
            ended.set()
        return len(calls) < 3

    began = time.monotonic()
    Recurring(call, 0.05, "three-times")
    assert ended.wait(300)
    assert calls[0] - began >= 0.05
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(calls))


def test_what_is_stopped_before_it_is_due_has_no_thread_and_no_call() -> None:
    calls: list[int] = []
    recurring = Recurring(lambda: not calls.append(1), 3.0, "never-due")
    assert threads("never-due") == []
    recurring.stop()
    later = threading.Event()
    Recurring(lambda: later.set() is None and False, 3.1, "due-later")
    assert later.wait(300)
    assert (calls, threads("never-due")) == ([], [])


def test_one_that_is_due_earlier_does_not_wait_for_those_that_came_before() -> None:
    slow, called = Recurring(lambda: True, 3600.0, "slow"), threading.Event()
    time.sleep(0.1)  # a thread that waits for the slow call sleeps by now
    quick = Recurring(lambda: called.set() is None, 0.05, "quick")
    assert called.wait(300)
    quick.stop()
    slow.stop()


def test_no_call_is_under_way_when_it_is_stopped() -> None:
    begun, ended = threading.Event(), threading.Event()

    def call() -> bool:
        begun.set()
        time.sleep(0.3)
        ended.set()
        return True

    recurring = Recurring(call, 0.01, "under-way")
    assert begun.wait(300)
    recurring.stop()
    assert ended.is_set()
    assert threads("under-way") == []


def test_a_forked_process_has_its_own() -> None:
    parents = Recurring(lambda: True, 3600.0, "parents")
    child = os.fork()
    if child == 0:
        called = threading.Event()
        Recurring(lambda: called.set() is None, 0.05, "childs")
        os._exit(0 if called.wait(300) else 1)
    _, status = os.waitpid(child, 0)
    parents.stop()
    assert os.waitstatus_to_exitcode(status) == 0
