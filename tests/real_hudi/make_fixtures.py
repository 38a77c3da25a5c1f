"""Small tables by the real Hudi, with what the JVM itself answers about them.

``make fixtures``, or ``python -m tests.real_hudi.make_fixtures [NAME ...]``, writes an archive of the table
and a JSON file of answers for each of :mod:`tests.real_hudi.fixture_kinds` into ``tests/fixtures/real_hudi``.
:mod:`tests.unit.table.test_tables_of_the_real_hudi` judges this package's reader by them in every run.

The answers are the rows now, as of every commit, those that were changed since every commit, and the rows
of some conditions. A question that the JVM itself fails at has the error instead.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from airflow_provider.table.storage.storage import Storage
from airflow_provider.table.timeline.active import Timeline
from airflow_provider.table.timeline.instant import WRITE_ACTIONS, Instant, after

from .answers import plain_rows
from .fixture_kinds import KINDS, Kind, Making
from .jvm import HudiError, Jvm, Session, running

FIXTURES = Path(__file__).parents[1] / "fixtures" / "real_hudi"
_NO_MOMENT = 1980, 1, 1, 0, 0, 0  # so that the same table makes the same archive


def make(kind: Kind, hudi: Session, folder: Path) -> None:
    """One table, its archive and its answers.

    :param kind: of table.
    :param hudi: in a JVM of the kind's release.
    :param folder: for the table.
    """
    made = Making(hudi, folder / kind.name, kind)
    kind.steps(made)
    answers = answers_of(made)
    _pack(made.location)
    target = FIXTURES / f"{kind.name}.json"
    target.write_text(json.dumps(answers, ensure_ascii=False, sort_keys=True) + "\n")


def answers_of(made: Making) -> dict[str, Any]:
    """What the JVM says of a table."""
    layout = 1 if made.kind.version == 6 else 2
    commits = Timeline.load(Storage(str(made.location)), layout).commits()
    ends = [commit.completion_time or commit.requested_time for commit in commits]
    return {
        "hudi": made.kind.hudi,
        "version": made.kind.version,
        "is": made.kind.about,
        "now": _told(lambda: made.read()),
        "as_of": {
            commit.requested_time: _told(lambda at=commit: made.read({"as.of.instant": at.requested_time}))
            for commit in commits
            if _is_shown(commit)
        },
        "since": {
            after: _told(lambda after=after: made.read(_since(after, made.kind.hudi))) for after in ends[:-1]
        },
        "where": [
            {"condition": list(one), "rows": _told(lambda one=one: made.read(where=_in_sql(one)))}
            for one in made.kind.where
        ],
    }


def _is_shown(instant: Instant) -> bool:
    return instant.action in WRITE_ACTIONS


def _since(at: str, hudi: str) -> dict[str, str]:
    begin = after(at) if hudi == "1.0.2" else at  # that release's windows include their start
    return {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
    }


def _in_sql(condition: tuple[str, str, Any]) -> str:
    column, how, value = condition
    return f"{column} {how} {value!r}"


def _told(ask: Callable[[], Iterable[dict[str, Any]]]) -> Any:
    try:
        return plain_rows(ask())
    except HudiError as error:
        return {"error": re.sub(r"/\S+", "...", str(error))[:200]}


def _pack(table: Path) -> None:
    """An archive of a table, without checksums and empty folders."""
    with zipfile.ZipFile(
        FIXTURES / f"{table.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as archive:
        for path in sorted(table.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                entry = zipfile.ZipInfo(str(path.relative_to(table)), _NO_MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())


def main(names: list[str]) -> None:
    """Make them all, or those of these names."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    wanted = [kind for kind in KINDS if not names or kind.name in names]
    for release, kinds in groupby(sorted(wanted, key=lambda kind: kind.hudi), key=lambda kind: kind.hudi):
        with (
            tempfile.TemporaryDirectory(prefix="fixtures-") as folder,
            running(Path(folder) / "jvm", release) as jvm,
        ):
            for kind in kinds:
                _made(kind, jvm, Path(folder))


def _made(kind: Kind, jvm: Jvm, folder: Path) -> None:
    hudi = jvm.session()
    try:
        make(kind, hudi, folder)
    except HudiError as error:
        print(f"{kind.name}: NOT made: {error}"[:600], flush=True)
    else:
        size = (FIXTURES / f"{kind.name}.zip").stat().st_size
        print(f"{kind.name}: {size:,} bytes", flush=True)
    finally:
        hudi.close()
        shutil.rmtree(folder / kind.name, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
