"""Lines of text, CSV and JSON, read as Spark's readers read them.

Spark and pyarrow read unusual texts differently: an escaped quote, a number with a plus sign, a time without
its zone. So this reader accepts only texts that both read alike, and raises
:class:`~airflow_provider.exceptions.SparkNeededError` for anything else. As with Spark
(:mod:`airflow_provider.spark.ingestion.source`), a column has the type that the table has for it, and a new
column the type that Spark infers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from airflow_provider.exceptions import SparkNeededError, UnreadableSourceError
from airflow_provider.ingestion.files.found import SourceFile, SourceFiles
from airflow_provider.ingestion.files.parquet import check_names

_SAID_ANYWAY = {"mode": "failfast", "inferschema": "false", "multiline": "false", "encoding": "utf-8"}
"""Options whose value is the reader's fixed behaviour."""


# --- CSV ----------------------------------------------------------------------------------


def read_csv(found: SourceFiles, options: Mapping[str, str], columns: pa.Schema) -> pa.Table:
    """Read CSV files with a header.

    :param found: the files.
    :param options: options of Spark's reader.
    :param columns: the table's columns.
    :raises SparkNeededError: when Spark would read them in another way.
    :raises UnreadableSourceError: when a file cannot be read.
    """
    left = _other_options(options)
    if left.pop("header", "false").lower() != "true":
        raise SparkNeededError("without the source option header=true the columns have names of Spark's")
    separator = left.pop("sep", left.pop("delimiter", ","))
    null = left.pop("nullvalue", "")
    _check_none_left(left)
    if len(separator) != 1 or not separator.isascii() or separator in '"\\\r\n':
        raise SparkNeededError(f"only Spark reads CSV with the separator {separator!r}")
    tables: list[pa.Table] = []
    for file in found.files:
        data = _lines_of(found, file)
        table = _csv_texts(data, separator, null) if data else None
        if tables and table is not None and table.schema != tables[0].schema:
            raise SparkNeededError(f"{file.path} has another header than {found.files[0].path}")
        if table is not None:
            tables.append(table)
    if not tables:
        raise SparkNeededError("no file has a line, and only Spark tells which columns that are")
    texts = pa.concat_tables(tables)
    return _typed(texts, {name: _kind_in(columns, name) for name in texts.schema.names})


def _csv_texts(data: bytes, separator: str, null: str) -> pa.Table:
    """All values as text."""
    if b"\\" in data:
        raise SparkNeededError("a character is escaped")
    if b'"' in data:
        sep = re.escape(separator.encode())
        plain = re.compile(rb'(?:(?<=\n)|(?<=%b)|^)"[^"\n]+"(?=%b|\r?\n|$)' % (sep, sep))
        if b'"' in plain.sub(b"", data):
            raise SparkNeededError("a quote is escaped, is inside of a value, or stands around nothing")
    header = data.partition(b"\n")[0].strip(b"\r").decode()
    names = [name.strip('"') for name in header.split(separator)]
    if not all(re.fullmatch(r"\w+", name) for name in names):
        raise SparkNeededError(f"the header {header!r} has a name that is no word")
    check_names(names)
    try:
        return pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(use_threads=False, column_names=names, skip_rows=1, block_size=len(data) + 1),
            pa.csv.ParseOptions(delimiter=separator),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=list({null, ""}),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except pa.ArrowException as error:
        raise SparkNeededError(f"pyarrow does not read it: {error}") from error


# --- JSON ---------------------------------------------------------------------------------


def read_json(found: SourceFiles, options: Mapping[str, str], columns: pa.Schema) -> pa.Table:
    """Read files with a JSON object in each line, without nested objects and arrays.

    :param found: the files.
    :param options: options of Spark's reader.
    :param columns: the table's columns.
    :raises SparkNeededError: when Spark would read them in another way.
    :raises UnreadableSourceError: when a file cannot be read.
    """
    _check_none_left(_other_options(options))
    data = b"\n".join(_lines_of(found, file) for file in found.files)
    lines = [line for line in data.splitlines() if line]
    if not lines:
        raise SparkNeededError("no file has a line, and only Spark tells which columns that are")
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise SparkNeededError("a line is no JSON object")
    if re.search(rb"[0-9]{19}", data):
        raise SparkNeededError("a number may be larger than 64 bits")
    inferred = _parsed(data, len(lines), None).schema
    # Spark sorts the columns by name.
    names = sorted(inferred.names)
    check_names(names)
    kinds = {name: _kind_in(columns, name) or _kind_of_new(inferred.field(name)) for name in names}
    read_as = {name: kind if _is_json(kind) else pa.string() for name, kind in kinds.items()}
    return _typed(_parsed(data, len(lines), pa.schema(read_as.items())).select(names), kinds)


def _parsed(data: bytes, lines: int, schema: pa.Schema | None) -> pa.Table:
    try:
        table = pa.json.read_json(
            pa.BufferReader(data),
            pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pa.json.ParseOptions(explicit_schema=schema),
        )
    except pa.ArrowException as error:
        raise SparkNeededError(f"pyarrow does not read it: {error}") from error
    if table.num_rows != lines:
        raise SparkNeededError("an object is not in a line of its own")
    return table


def _is_json(kind: pa.DataType) -> bool:
    """Whether JSON has values of a type; other values are texts in JSON."""
    return any(is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def _kind_of_new(field: pa.Field) -> pa.DataType:
    """The type that Spark infers for a column that is new to the table."""
    if _is_json(field.type):
        return field.type
    if pa.types.is_string(field.type) or pa.types.is_timestamp(field.type):
        return pa.string()
    raise SparkNeededError(f"column {field.name!r} is not in the table, and of type {field.type}")


# --- CSV and JSON -------------------------------------------------------------------------


def _check_none_left(options: Mapping[str, str]) -> None:
    if options:
        texts = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
        raise SparkNeededError(f"only Spark's reader knows the source option {texts}")


def _other_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that differ from the reader's fixed behaviour; Spark ignores their case."""
    given = {name.lower(): str(value) for name, value in options.items()}
    return {name: value for name, value in given.items() if _SAID_ANYWAY.get(name) != value.lower()}


def _lines_of(found: SourceFiles, file: SourceFile) -> bytes:
    """The lines of a file, without empty ones at its beginning and end."""
    if file.name.rpartition(".")[2].lower() in ("gz", "bz2", "zst", "lz4", "snappy", "deflate", "xz", "zip"):
        raise SparkNeededError(f"{file.path} is compressed")
    try:
        data: bytes = found.filesystem.cat_file(file.path)
    except OSError as error:
        raise UnreadableSourceError(
            f"source {file.path} cannot be read: {type(error).__name__}: {error}; check the path",
            source=file.path,
        ) from error
    if data.startswith(b"\xef\xbb\xbf") or b"\0" in data:
        raise SparkNeededError(f"{file.path} has a byte order mark, or a character 0 in it")
    if re.search(rb"\r(?!\n)|^[ \t]+\r?$", data, re.MULTILINE):
        raise SparkNeededError(f"{file.path} has a line of white space, or a line that ends in another way")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise SparkNeededError(f"{file.path} is not in UTF-8: {error}") from error
    return data.strip(b"\r\n")


def _kind_in(columns: pa.Schema, name: str) -> pa.DataType | None:
    """The type that the table has for a column; None where it has no such column."""
    position = columns.get_field_index(name)
    return columns.field(position).type if position >= 0 else None


def _typed(table: pa.Table, kinds: Mapping[str, pa.DataType | None]) -> pa.Table:
    """Convert columns of text to their types; a column stays text where its type is None."""
    made: dict[str, pa.ChunkedArray] = {}
    for name, kind in kinds.items():
        column = table[name]
        needs_no_look = kind is None or pa.types.is_string(kind) or column.type == kind
        made[name] = column if needs_no_look else _converted(name, column, kind)
    return pa.table(made)


def _converted(name: str, texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    for is_kind, pattern, read_as in _PLAIN:
        if not is_kind(kind):
            continue
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py() not in (True, None):
            break
        try:
            return texts.cast(read_as or kind)
        except pa.ArrowException as error:
            raise SparkNeededError(f"column {name!r} is no {kind}: {error}") from error
    raise SparkNeededError(f"column {name!r} has a text that Spark reads as {kind} in its own way")


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _is_time_of_day_and_date(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


_DAY = "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_MOMENT = rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
_Rule = tuple[Callable[[pa.DataType], bool], str, pa.DataType | None]
_PLAIN: Sequence[_Rule] = (
    (pa.types.is_integer, r"^-?[0-9]{1,18}$", None),
    (pa.types.is_floating, r"^-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?$", None),
    (pa.types.is_boolean, r"^(true|false)$", None),
    (pa.types.is_decimal, r"^-?[0-9]{1,28}(\.[0-9]{1,10})?$", None),
    (pa.types.is_date32, rf"^{_DAY}$", None),
    # A time without a zone would be in the session's zone.
    (_is_moment, rf"{_MOMENT}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$", pa.timestamp("us", "UTC")),
    (_is_time_of_day_and_date, rf"{_MOMENT}$", pa.timestamp("us")),
)
"""For each type, the texts that Spark and pyarrow read alike, and the type to parse them as if it differs."""
