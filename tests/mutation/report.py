"""Write docs/mutants.md: the figures of the run, and for each survivor the reason why it is harmless.

Function, old lines and new lines identify a survivor, not a line's number, so that a reason stays valid until
somebody changes the lines themselves.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

HARMLESS = Path("tests/mutation/harmless.toml")
INTRODUCTION = Path("tests/mutation/introduction.md")
PAGE = Path("docs/mutants.md")
HOUSE = "airflow_provider/concurrency/"
TRIED = ("killed", "caught by type check", "timeout", "survived", "no tests")


@dataclass(frozen=True)
class Survivor:
    """A change that no test has noticed.

    :param function: module and name of the changed function.
    :param was: the lines before the change.
    :param becomes: the lines after the change.
    """

    function: str
    was: str
    becomes: str


def main() -> int:
    """Write the page; return 1 if `harmless.toml` lacks the reason of a survivor."""
    known = {
        Survivor(each["function"], each["was"], each["becomes"]): each["because"]
        for each in tomllib.loads(HARMLESS.read_text()).get("mutant", [])
    }
    figures: dict[str, Counter[str]] = {}
    not_tried: dict[str, Counter[str]] = {}
    survivors: list[Survivor] = []
    last, seconds = 0.0, list[float]()
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        verdicts = {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}
        if not verdicts:
            continue
        module = str(path).removeprefix(HOUSE)
        figures[module] = Counter(verdicts.values())
        survivors += [
            _survivor(module, name, path)
            for name, verdict in verdicts.items()
            if verdict in ("survived", "no tests")
        ]
        left = Counter(_function(name) for name, verdict in verdicts.items() if verdict not in TRIED)
        if left:
            not_tried[module] = left
        seconds += data.durations_by_key.values()
        if set(verdicts.values()) != {"not checked"}:
            last = max(last, data.meta_path.stat().st_mtime)
    unknown = [survivor for survivor in survivors if survivor not in known]
    ran = _what_was_run(figures, last, sum(seconds) / max(1, len(seconds)))
    lines = [*ran, *_what_was_not_tried(not_tried), *_what_survived(survivors, known)]
    PAGE.write_text("\n".join([INTRODUCTION.read_text(), *lines]))
    for survivor in unknown:
        print(_as_toml(survivor))
    print(f"{PAGE}: {len(survivors)} survivors, {len(unknown)} of them without a reason in {HARMLESS}")
    return bool(unknown)


def _function(name: str) -> str:
    function, of_class = orig_function_and_class_names_from_key(name)
    return f"{of_class + '.' if of_class else ''}{function}"


def _survivor(module: str, name: str, path: Path) -> Survivor:
    diff = get_diff_for_mutant(name, path=path).splitlines()[2:]
    was = " ".join(line[1:].strip() for line in diff if line.startswith("-"))
    becomes = " ".join(line[1:].strip() for line in diff if line.startswith("+"))
    return Survivor(f"{module}: {_function(name)}", was, becomes)


def _as_toml(survivor: Survivor) -> str:
    said = {"function": survivor.function, "was": survivor.was, "becomes": survivor.becomes, "because": ""}
    return "\n".join(["[[mutant]]", *(f"{key} = '''{value}'''" for key, value in said.items()), ""])


def _what_was_run(figures: dict[str, Counter[str]], last: float, seconds: float) -> list[str]:
    lines = ["## What was run", ""]
    tried = sum(counts[verdict] for counts in figures.values() for verdict in TRIED)
    made = sum(counts.total() for counts in figures.values())
    day = f"{datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M} UTC"
    lines += [
        f"The last mutant was tried on {day}: {tried} of {made} mutants until then.",
        f"Those that the type checker let through took {seconds:.1f} s each, one after the other.",
        "The next `make mutants` goes on with those that were not tried.",
        "",
        "| module | mutants | killed by a test | by the type checker | survived | not tried |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for module, counts in sorted(figures.items()):
        cells = [
            counts.total(),
            counts["killed"] + counts["timeout"],
            counts["caught by type check"],
            counts["survived"] + counts["no tests"],
            counts.total() - sum(counts[verdict] for verdict in TRIED),
        ]
        lines.append(f"| `{module}` | {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def _what_was_not_tried(not_tried: dict[str, Counter[str]]) -> list[str]:
    """The functions, by module, each with the number of its mutants."""
    if not not_tried:
        return []
    lines = ["## What was not tried", "", "By function, with the number of its mutants:", ""]
    for module, functions in sorted(not_tried.items()):
        told = ", ".join(f"`{function}` {count}" for function, count in sorted(functions.items()))
        lines.append(f"* `{module}`: {told}")
    return [*lines, ""]


def _what_survived(survivors: list[Survivor], known: dict[Survivor, str]) -> list[str]:
    lines = ["## What survived", ""]
    for function in sorted({survivor.function for survivor in survivors}):
        lines += [f"### {function}", ""]
        for survivor in dict.fromkeys(each for each in survivors if each.function == function):
            lines += ["```diff", f"- {survivor.was}", f"+ {survivor.becomes}", "```", ""]
            lines += [known.get(survivor, "**Nobody has said yet why this is harmless.**"), ""]
    return lines


if __name__ == "__main__":
    sys.exit(main())
