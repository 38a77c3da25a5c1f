"""Two processes upsert into the same file group at the same time."""

from __future__ import annotations

from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from airflow_provider.concurrency import Writer
from airflow_provider.exceptions import WriteConflictError
from tests.processes.table.agreement import read_ours, read_theirs
from tests.processes.table.ingestion import create, session, upsert

ROUNDS = 20


def _contend(remote: str, location: str, name: str, barrier: Barrier, results: Queue[Any]) -> None:
    spark = session(remote)
    plan = Writer.plan

    def plan_then_wait(self: Writer, *args: Any, **kwargs: Any) -> None:
        plan(self, *args, **kwargs)
        barrier.wait(400)  # both have begun before either commits

    Writer.plan = plan_then_wait  # type: ignore[method-assign]
    for number in range(ROUNDS):
        rows = {"shared": (number, "p"), f"{name}-{number}": (number, "p")}
        try:
            results.put((number, name, upsert(spark, location, rows)["instant"]))
        except WriteConflictError:
            results.put((number, name, None))
        barrier.wait(400)


def test_exactly_one_wins_each_round(processes: ForkServerContext, spark_remote: str, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    upsert(session(spark_remote), table.location, {"shared": (-1, "p")})
    barrier, results = processes.Barrier(2), processes.Queue()
    contenders = [
        processes.Process(target=_contend, args=(spark_remote, table.location, name, barrier, results))
        for name in ("a", "b")
    ]
    for contender in contenders:
        contender.start()
    outcomes = [results.get(timeout=300) for _ in range(2 * ROUNDS)]
    for contender in contenders:
        contender.join()

    winners = {number: name for number, name, instant in outcomes if instant is not None}
    assert sorted(number for number, _, instant in outcomes if instant is not None) == list(range(ROUNDS))
    expected = {"shared": (ROUNDS - 1, "p")} | {f"{name}-{n}": (n, "p") for n, name in winners.items()}
    assert read_ours(table.location) == expected
    assert read_theirs(table.location) == expected
    assert table.timeline().pending() == ()
