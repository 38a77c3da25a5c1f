"""Replicas and writers in processes of their own; imports little, so that they start fast."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

from airflow_provider.metastore import PartitionSpec, open_metastore
from airflow_provider.metastore.cached_store import open_cached_store

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.processes.replicas"])
TABLES = ["flights", "trains"]


class Replica:
    """A replica in a process; answers one read at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self.name = url, name
        self.start()

    def start(self) -> None:
        self._pipe, far = PROCESSES.Pipe()
        arguments = (self._url, self.name, far)
        self._process = PROCESSES.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        far.close()

    def ask(self, method: str, *arguments: Any, **reader: Any) -> Any:
        self._pipe.send((method, arguments, reader))
        assert self._pipe.poll(60), f"{self.name} does not answer {method}"
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL
        self._pipe.close()

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(60)
        assert self._process.exitcode == 0


def _serve(url: str, name: str, pipe: Connection) -> None:
    store = open_cached_store(url, name, poll_interval=0.02)
    while (request := pipe.recv()) is not None:
        method, arguments, reader = request
        try:
            pipe.send(getattr(store, method)(*arguments, **reader))
        except Exception as error:
            pipe.send(error)
    store.close()


def write(url: str, name: str, stop: Event) -> None:
    """Transactions of one to three changes of one or both tables; every change tells its write id."""
    metastore, chance = open_metastore(url), random.Random(name)
    while not stop.is_set():
        txn_id = metastore.open_txn(name, "here")
        for table in chance.sample(TABLES, chance.randint(1, 2)):
            write_id = metastore.allocate_table_write_id(txn_id, "lake", table)
            for number in range(chance.randint(1, 2)):
                spec = PartitionSpec((f"{name}.{number}", str(write_id)), "/p")
                metastore.add_partitions("lake", table, [spec], txn_id=txn_id)
        if chance.random() < 0.8:
            metastore.commit_txn(txn_id)
        else:
            metastore.abort_txn(txn_id)
        # A change without a transaction, on a table that all writers change.
        metastore.alter_table("lake", "notes", owner=f"{name} {txn_id}")
        time.sleep(chance.random() * 0.1)
