"""Table services beside their peers; see the modules that this one runs.

Usage: ``python -m benchmarks.services [--runs N]``. Prints medians and ratios; on a busy machine only the
ratios mean something.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from benchmarks import clustering


def main() -> None:
    """Run, and print tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=5, help="counted runs of each")
    clustering.benchmark(Console(), arguments.parse_args().runs)


if __name__ == "__main__":
    main()
