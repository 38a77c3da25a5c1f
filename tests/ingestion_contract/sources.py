"""Sources that Spark and pyarrow read in the same way, and sources that only Spark may read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int32(),
        "day": pa.date32(),
        "price": pa.decimal128(8, 2),
        "note": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "seen": pa.timestamp("ms"),
        "f": pa.float32(),
        "ok": pa.bool_(),
    }
)
HEADER = {"header": "true"}


@dataclass(frozen=True)
class Case:
    """A source: its files, and the options to read them.

    :param write: writes the files into a folder.
    :param pattern: the pattern of the paths, below the folder.
    :param options: ``source_format`` and ``source_options``.
    """

    write: Callable[[Path], object]
    pattern: str = "*"
    options: Mapping[str, object] = field(default_factory=dict)

    def source(self, folder: Path) -> str:
        """The source, with its files written."""
        folder.mkdir(parents=True, exist_ok=True)
        self.write(folder)
        return str(folder / self.pattern) if self.pattern else str(folder)


def parquet(rows: pa.Table, name: str = "a.parquet") -> Callable[[Path], object]:
    return lambda folder: pq.write_table(rows, folder / name)


def text(kind: str, lines: str, options: Mapping[str, str] | None = None) -> Case:
    described = {"source_format": kind, "source_options": options or {}}
    return Case(lambda folder: (folder / f"a.{kind}").write_bytes(lines.encode()), options=described)


def csv(lines: str, **options: str) -> Case:
    return text("csv", lines, {**HEADER, **options})


def several(*writes: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [write(folder) for write in writes]


def rows(*ids: int, **more: object) -> pa.Table:
    first = {
        "n": 7,
        "day": datetime.date(2013, 1, 2),
        "price": Decimal("1.50"),
        "note": "a, b",
        "at": datetime.datetime(2013, 1, 2, 3, 4, 5, 600, tzinfo=datetime.UTC),
        "seen": datetime.datetime(2013, 1, 2, 3, 4, 5, 6000),
        "f": 0.1,
        "ok": True,
    }
    made = pa.Table.from_pylist([{"id": each, **first} for each in ids[:-1]] + [{"id": ids[-1]}], COLUMNS)
    for name, column in more.items():
        position = made.schema.get_field_index(name)
        made = made.append_column(name, column) if position < 0 else made.set_column(position, name, column)
    return made


_JSON = [
    {
        "id": 1,
        "n": 7,
        "day": "2013-01-02",
        "note": '\u00e9, "b"',
        "at": "2013-01-02T03:04:05.0006Z",
        "f": 0.1,
    },
    {"id": 2, "ok": False, "seen": "2013-01-02 03:04:05.006", "note": None, "f": 3},
    {"id": 3, "z": 1.5, "b": "2013-01-02T03:04:05Z", "a": 4},
    {"id": 4, "z": 2, "at": "2013-01-02T03:04:05+01:00"},
]

ALIKE: Mapping[str, Case] = {
    "parquet": Case(parquet(rows(1, 2, 3))),
    "a folder with what is no data": Case(
        several(
            parquet(rows(1, 2)),
            parquet(rows(3, 4), "b.parquet"),
            lambda folder: (folder / "_SUCCESS").write_text(""),
            lambda folder: (folder / ".hidden").write_text("x"),
        ),
        pattern="",
    ),
    "folders that a pattern names": Case(
        several(
            lambda folder: [(folder / f"part={n}").mkdir() for n in (1, 2)],
            parquet(rows(1, 2), "part=1/a.parquet"),
            parquet(rows(3, 4), "part=2/a.parquet"),
        ),
        pattern="part=*",
    ),
    "types that Spark has not got": Case(
        parquet(
            rows(
                1,
                2,
                note=pa.array(["x", None]).dictionary_encode(),
                n=pa.array([1, 2], pa.uint16()),
                u=pa.array([1, 2**32 - 1], pa.uint32()),
                large=pa.array(["y", None], pa.large_string()),
                at=pa.array([5, None], pa.timestamp("ms", "Europe/Berlin")),
                deep=pa.array([[{"a": 1, "b": {"k": 2}}], None], pa.list_(pa.struct([("a", pa.int8())]))),
            )
        )
    ),
    "csv": csv(
        "note,id,price,day,at,f,ok,n,seen\n"
        '"a, b",1,1.5,2013-01-02,2013-01-02T03:04:05Z,0.1,true,7,2013-01-02T03:04:05.006\n'
        "\n,2,,,,,,,\r\n"
        " x ,3,-12.25,1999-12-31,2013-01-02 03:04:05.123456+02:00,-1e3,false,-7,2013-01-02 03:04:05\n",
    ),
    "csv with words of its own": Case(
        several(
            lambda folder: (folder / "a.csv").write_text("id|note|new\n1|NA|x\n"),
            lambda folder: (folder / "b.csv").write_text("id|note|new\n2|b|\n3||007\n"),
        ),
        options={"source_format": "CSV", "source_options": {"HEADER": "True", "sep": "|", "nullValue": "NA"}},
    ),
    "json": text("json", "\n".join(map(json.dumps, _JSON)) + "\n\n"),
}
"""Sources that both read, with the same table as the result."""

_OTHER = rows(1, 2)
UNLIKE: Mapping[str, tuple[Case, str]] = {
    "parquet with columns that differ": (
        Case(several(parquet(_OTHER), parquet(_OTHER.drop_columns(["n"]), "b.parquet"))),
        "other columns",
    ),
    "parquet with nanoseconds": (
        Case(parquet(rows(1, 2, at=pa.array([1, 2], pa.timestamp("ns", "UTC"))))),
        "'at' is of type timestamp",
    ),
    "parquet of another calendar": (
        Case(parquet(_OTHER.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}))),
        "calendar of Spark 2.4.8",
    ),
    "names that differ by case": (Case(parquet(rows(1, 2, N=pa.array([1, 2])))), "differ by case"),
    "folders in a folder": (
        Case(several(parquet(_OTHER), lambda folder: (folder / "day=1").mkdir()), pattern=""),
        "holds the folder",
    ),
    "Hadoop's patterns": (Case(parquet(_OTHER), pattern="{a,b}.parquet"), "Hadoop's alone"),
    "options of Spark's reader": (
        Case(parquet(_OTHER), options={"source_options": {"mergeSchema": "true"}}),
        "mergeSchema",
    ),
    "a format of Spark's": (
        Case(parquet(_OTHER), options={"source_format": "orc"}),
        "'orc' is read by Spark",
    ),
    "csv without a header": (text("csv", "1,2\n"), "header=true"),
    "csv with an option": (csv("id\n1\n", comment="#"), "source option comment=#"),
    "csv with an escaped quote": (csv('id,note\n1,"a \\" b"\n'), "escaped"),
    "csv with a doubled quote": (csv('id,note\n1,"a "" b"\n'), "quote"),
    "csv with a quoted end of line": (csv('id,note\n1,"a\nb"\n'), "quote"),
    "csv with a quote inside": (csv('id,note\n1,a"b\n'), "quote"),
    "csv with a short line": (csv("id,note\n1,a\n2\n"), "pyarrow does not read it"),
    "csv with a plus sign": (csv("id\n+1\n"), "'id' has a text"),
    "csv with a moment without zone": (csv("id,at\n1,2013-01-02 03:04:05\n"), "'at' has a text"),
    "csv with a day of one digit": (csv("id,day\n1,2013-1-2\n"), "'day' has a text"),
    "csv with a number that is none": (csv("id,f\n1,NaN\n"), "'f' has a text"),
    "csv that is compressed": (
        Case(
            lambda folder: (folder / "a.csv.gz").write_bytes(b"x"),
            options={"source_format": "csv", "source_options": HEADER},
        ),
        "compressed",
    ),
    "csv in another encoding": (
        Case(
            lambda folder: (folder / "a.csv").write_bytes("id,note\n1,\u00e9\n".encode("latin-1")),
            options={"source_format": "csv", "source_options": HEADER},
        ),
        "UTF-8",
    ),
    "json with a number for a text": (text("json", '{"id": 1, "note": 5}\n'), "pyarrow does not read it"),
    "json with two objects in a line": (text("json", '{"id": 1}{"id": 2}\n'), "line of its own"),
    "json over several lines": (text("json", '{"id":\n1}\n'), "no JSON object"),
    "json with an object inside": (text("json", '{"id": 1, "new": {"a": 1}}\n'), "'new' is not in the table"),
    "json with a large number": (text("json", '{"id": 1, "new": 92233720368547758080}\n'), "64 bits"),
}
"""Sources that Spark reads in its own way, or not at all, each with the text of pyarrow's refusal."""
