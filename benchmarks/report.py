"""Where every benchmark reports: a table on the screen, and rows for the table of ``docs/performance.md``.

::

    with Report("compactions") as report:
        for name, work in WORKS.items():
            took, peaks = in_turns({"ours": work.ours, "delta-rs": work.theirs}, rounds=3, warm_up=1)
            report.add(name, *sides(took, peaks))

Each work has a row for each peer: both medians, how many times as fast ours is, and the peak memory of both.
``python -m benchmarks`` runs all benchmarks and writes their rows into the page.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.table import Table

RESULTS = "BENCHMARK_RESULTS"
"""Environment variable: the file that gets a line of JSON for each row."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Side:
    """What one library did.

    :param name: the library; ``ours`` for this package.
    :param values: of each counted round, in the unit of the work.
    :param memory: peak of the memory of its process, in bytes; None where it is not known.
    """

    name: str
    values: Sequence[float]
    memory: int | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Row:
    """A row of the page's table.

    :param work: what was done.
    :param ours: our median, with its unit.
    :param peer: the peer's name and median; empty where there is none.
    :param ratio: how many times as fast ours is; empty where there is no peer.
    :param memory: peaks of ours and the peer, in MB.
    :param benchmark: the module that measured it.
    """

    work: str
    ours: str
    peer: str
    ratio: str
    memory: str
    benchmark: str


class Report:
    """What a benchmark has found. At the end of the ``with`` block it is printed.

    :param benchmark: the benchmark's module, without the package.
    :param note: the sizes and rounds, for the table's title.
    """

    def __init__(self, benchmark: str, note: str = "") -> None:
        self._benchmark, self._note = benchmark, note
        self._rows: list[tuple[Row, dict[str, object]]] = []

    def add(
        self,
        work: str,
        ours: Side,
        *peers: Side,
        unit: str = "s",
        more_is_faster: bool = False,
        **details: object,
    ) -> None:
        """Add a work.

        :param work: what was done, for people.
        :param ours: this package's figures.
        :param peers: those of the others, of the same rounds.
        :param unit: of the figures.
        :param more_is_faster: True for rates, False for times and sizes.
        :param details: further columns, on the screen only.
        """
        for peer in peers or (None,):
            ratio = None if peer is None else _times_as_fast(ours, peer, more_is_faster)
            memory = [_megabytes(each.memory) for each in (ours, peer) if each is not None]
            row = Row(
                work,
                f"{_short(ours.median)} {unit}",
                f"{peer.name} {_short(peer.median)} {unit}" if peer else "",
                f"{ratio:.2f}" if ratio is not None else "",
                " / ".join(memory) if any(memory) else "",
                self._benchmark,
            )
            self._rows.append((row, details if peer is None or peer is peers[0] else {}))
            if file := os.environ.get(RESULTS):  # at once: hours of work are not lost with the last step
                with Path(file).open("a") as lines:
                    lines.write(f"{json.dumps(asdict(row))}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was measured before an error is shown as well.
        names = list(dict.fromkeys(name for _, details in self._rows for name in details))
        shown = Table(
            "work",
            "ours",
            "peer",
            "times as fast",
            "MB, ours / peer",
            *names,
            title=f"{self._benchmark}: {self._note}; load average {os.getloadavg()[0]:.1f}",
        )
        for row, details in self._rows:
            cells = (row.work, row.ours, row.peer, row.ratio, row.memory)
            shown.add_row(*cells, *(str(details.get(name, "")) for name in names))
        Console(width=None if sys.stdout.isatty() else 160).print(shown)


def in_turns(
    works: Mapping[str, Callable[[], tuple[float, int | None]]], *, rounds: int, warm_up: int = 1
) -> list[Side]:
    """Let the libraries take turns, so that a machine that slows down slows all of them down.

    :param works: by library, ours first: does the work once, prepared anew; returns its figure, and the peak
        of its memory in bytes, or None.
    :param rounds: that count.
    :param warm_up: rounds before them.
    """
    figures: dict[str, list[float]] = {name: [] for name in works}
    peaks: dict[str, list[int]] = {name: [] for name in works}
    for number in range(warm_up + rounds):
        for name, work in works.items():
            figure, peak = work()
            if number >= warm_up:
                figures[name].append(figure)
                peaks[name] += [] if peak is None else [peak]
    return [Side(name, figures[name], max(peaks[name], default=None)) for name in works]


def alone(function: Callable[..., _T], *arguments: Any) -> tuple[_T, int]:
    """Call a function in a new process.

    :param function: of a module, so that the process finds it.
    :param arguments: what can be pickled.
    :return: what it returned, and the peak of the process's memory in bytes, with all imports.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_peak, (function, arguments))


def peak_memory() -> int:
    """The peak of this process's memory, in bytes."""
    # Linux hands the peak of the parent on to a child in ru_maxrss; this one begins with the program.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _with_peak(function: Callable[..., _T], arguments: tuple[Any, ...]) -> tuple[_T, int]:
    result = function(*arguments)
    return result, peak_memory()


def _times_as_fast(ours: Side, peer: Side, more_is_faster: bool) -> float:
    """The median of the ratios of the rounds, where both have the same; else the ratio of the medians."""
    pairs = list(zip(ours.values, peer.values, strict=False))
    if len(ours.values) != len(peer.values):
        pairs = [(ours.median, peer.median)]
    return statistics.median(a / max(b, 1e-9) if more_is_faster else b / max(a, 1e-9) for a, b in pairs)


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.0f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
