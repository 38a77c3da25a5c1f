"""Table services beside their peers; see the modules that this one runs.

Usage: ``python -m benchmarks.services [--runs N] [--only LAYOUT ...]``. Prints medians and ratios; on a busy
machine only the ratios mean something.
"""

from __future__ import annotations

import argparse

from benchmarks import clustering


def main() -> None:
    """Run, and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=5, help="counted runs of each")
    arguments.add_argument(
        "--only",
        nargs="+",
        choices=clustering.LAYOUTS,
        default=list(clustering.LAYOUTS),
        help="these layouts",
    )
    chosen = arguments.parse_args()
    clustering.benchmark(chosen.runs, chosen.only)


if __name__ == "__main__":
    main()
