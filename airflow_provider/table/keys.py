"""Record keys and partition paths, as Hudi's key generators build them.

Sources: ``SimpleKeyGenerator``, ``ComplexKeyGenerator``, ``KeyGenUtils`` and
``PartitionPathEncodeUtils`` of Apache Hudi (the latter follows Hive's ``FileUtils``).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import (
    InvalidPartitionValueError,
    InvalidRecordKeyError,
    MissingColumnError,
    NotATableError,
)
from airflow_provider.table.properties import TableConfig

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The path of null and of the empty text, which Hive and Hudi do not distinguish."""

_NULL_KEY = "__null__"
_EMPTY_KEY = "__empty__"
_MAX_SEGMENT = 255  # bytes of a file name, on all common file systems


def record_keys(batch: pa.Table | pa.RecordBatch, fields: Sequence[str] | TableConfig) -> pa.Array:
    """The ``_hoodie_record_key`` of every row.

    :param batch: rows; the key columns are strings, integers, booleans, dates, timestamps
        or decimals.
    :param fields: the key columns, or the table's configuration, which also tells whether a key of one column
        has the column's name.
    :return: strings: the value itself for one column, ``a:1,b:2`` for several columns. In the second form a
        null reads ``__null__`` and an empty text ``__empty__``.
    :raises MissingColumnError: when a key column is not in the rows.
    :raises InvalidRecordKeyError: when a key is null or empty, has a type that cannot be
        a key, or could be mistaken for another row's.
    """
    names = fields.record_key_fields if isinstance(fields, TableConfig) else tuple(fields)
    prefixed = fields.prefixed_record_key if isinstance(fields, TableConfig) else len(names) > 1
    texts = [_key_text(batch, name) for name in names]
    if not prefixed:
        text = texts[0]
        if text.null_count or (_may_be_empty(batch, names[0]) and pc.index(text, "").as_py() >= 0):
            _refuse_blank(_is_blank(text), names)
        return text
    blank = None
    parts: list[pa.Array | pa.Scalar] = []
    for position, (name, text) in enumerate(zip(names, texts, strict=True)):
        here = _is_blank(text)
        blank = here if blank is None else pc.and_(blank, here)
        _refuse_ambiguous(text, name, names[position + 1 :])
        marked = pc.if_else(pc.equal(text, ""), _EMPTY_KEY, text)
        parts += [pa.scalar(f"{',' if position else ''}{name}:"), pc.fill_null(marked, _NULL_KEY)]
    _refuse_blank(blank, names)
    return pc.binary_join_element_wise(*parts, "")


def location_columns(config: TableConfig) -> list[str]:
    """The columns that identify a row's record: partition and key.

    :param config: the table's configuration.
    """
    return list(dict.fromkeys([*config.partition_fields, *config.record_key_fields]))


def partition_path(values: Sequence[object], config: TableConfig) -> str:
    """The folder of the rows with these partition values.

    :param values: one value per partition column, in the order of ``config.partition_fields``.
    :param config: the table's configuration.
    :return: path relative to the table; empty for a table without partitions.
    :raises InvalidPartitionValueError: when there are more or fewer values than columns,
        or a value cannot become a folder in this table.
    """
    if len(values) != len(config.partition_fields):
        raise InvalidPartitionValueError(
            f"table {config.name!r} is partitioned by {list(config.partition_fields)}, got {values!r}"
        )
    segments = [
        _segment(column, _python_text(column, value), config)
        for column, value in zip(config.partition_fields, values, strict=True)
    ]
    return "/".join(segments)


def partition_paths(batch: pa.Table | pa.RecordBatch, config: TableConfig) -> pa.Array:
    """The partition path of every row.

    :param batch: rows.
    :param config: the table's configuration.
    :return: strings; rows with the same values share one computation.
    :raises MissingColumnError: when a partition column is not in the rows.
    :raises InvalidPartitionValueError: when a value cannot become a folder.
    """
    if not config.partition_fields:
        return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
    parts: list[pa.Array | pa.Scalar] = []
    for column in config.partition_fields:
        encoded = _column(batch, column)
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode(null_encoding="encode")
        distinct = _text(encoded.dictionary, column, InvalidPartitionValueError).to_pylist()
        segments = [_segment(column, text, config) for text in distinct]
        segments.append(_segment(column, None, config))
        indices = encoded.indices
        if indices.null_count:
            indices = pc.fill_null(indices.cast(pa.int64()), len(distinct))
        parts.append(pa.array(segments, pa.string()).take(indices))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")


def partition_values(path: str, config: TableConfig) -> tuple[str | None, ...]:
    """The partition values of a folder.

    :param path: partition path relative to the table.
    :param config: the table's configuration.
    :return: one text per partition column; None for null.
    :raises NotATableError: when the path is not a partition of such a table, or the table's key generator
        does not use the values as names.
    """
    columns = config.partition_fields
    if not config.folders_hold_values:
        raise NotATableError(
            f"folder {path!r} of table {config.name!r} says no values of {list(columns)}: its name is what "
            f"the key generator {config.key_generator} makes of them",
            path=path,
        )
    # A single value may itself hold slashes where values are not escaped (dates as 2024/01/31).
    segments = path.split("/") if len(columns) > 1 else [path] if columns else []
    values: list[str | None] = []
    for column, segment in zip(columns, segments, strict=False):
        name, equals, text = segment.partition("=")
        if config.hive_style and (not equals or name != column):
            break
        text = text if config.hive_style else segment
        null = text == DEFAULT_PARTITION
        values.append(None if null else unescape_path_name(text) if config.url_encode else text)
    if len(values) != len(columns) or len(segments) != len(columns) or bool(columns) != bool(path):
        raise NotATableError(
            f"folder {path!r} is not a partition of table {config.name!r}, partitioned by {list(columns)}",
            path=path,
        )
    return tuple(values)


# Control characters, and those with a meaning in a path, a URL or a shell pattern.
_UNSAFE = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_ESCAPED = re.compile(r"%([0-9a-fA-F]{2})")


def escape_path_name(text: str) -> str:
    """Escape a partition value for a path, as Hive and Hudi do: ``%`` and two hex digits."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """The inverse of :func:`escape_path_name`; a ``%`` without two hex digits stays."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _segment(column: str, text: str | None, config: TableConfig) -> str:
    if not text:
        value = DEFAULT_PARTITION
    elif config.url_encode:
        value = escape_path_name(text)
        # Hive and Hudi do not escape these names, which mean null or another folder. Their readers unescape a
        # first character like any other.
        if text == DEFAULT_PARTITION or (not config.hive_style and _is_other_folder(text)):
            value = f"%{ord(text[0]):02X}{value[1:]}"
    else:
        value = _verify_unescaped(column, text, config)
    segment = f"{column}={value}" if config.hive_style else value
    if max(len(step.encode()) for step in segment.split("/")) > _MAX_SEGMENT:
        raise InvalidPartitionValueError(
            f"partition column {column!r} has a value of {len(text or '')} characters, which makes a folder "
            f"name of more than {_MAX_SEGMENT} bytes ({segment[:60]!r}...); partition by something shorter",
            column=column,
        )
    return segment


def _is_other_folder(step: str) -> bool:
    return step in ("", ".", "..") or step.startswith(".hoodie")


def _verify_unescaped(column: str, text: str, config: TableConfig) -> str:
    steps = text.split("/")
    own = steps[1:] if config.hive_style else steps  # "column=.." is a name like any other
    shares_path = len(steps) > 1 and len(config.partition_fields) > 1
    if "\0" in text or shares_path or any(_is_other_folder(step) for step in own):
        raise InvalidPartitionValueError(
            f"partition column {column!r} has the value {text!r}, which is not a folder name, and table "
            f"{config.name!r} does not escape (hoodie.datasource.write.partitionpath.urlencode=false); "
            "change the value in the source, or create the table with escaping",
            column=column,
            value=text,
        )
    if text == DEFAULT_PARTITION:
        raise InvalidPartitionValueError(
            f"partition column {column!r} has the value {text!r}, which stands for null", column=column
        )
    return text


# --- values as text -----------------------------------------------------------------


def _column(batch: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise MissingColumnError(
            f"column {name!r} is not in the data, which has {', '.join(batch.schema.names)}", column=name
        )
    column = batch.column(position)
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _key_text(batch: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = _column(batch, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _text(column, name, InvalidRecordKeyError)


def _text(
    column: pa.Array, name: str, error: type[InvalidRecordKeyError] | type[InvalidPartitionValueError]
) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    try:
        if pa.types.is_timestamp(kind):
            # Hudi's default is the stored number (hoodie.datasource.write.keygenerator
            # .consistent.logical.timestamp.enabled=false).
            unit = "ms" if kind.unit in ("s", "ms") else "us"
            return column.cast(pa.timestamp(unit, tz=kind.tz)).cast(pa.int64()).cast(pa.string())
        if pa.types.is_date(kind):
            return column.cast(pa.date32()).cast(pa.string())
        if any(accepts(kind) for accepts in _CAST_TO_TEXT):
            return column.cast(pa.string())
    except pa.ArrowInvalid as cause:
        raise error(f"column {name!r} of type {kind} cannot become text: {cause}", column=name) from cause
    raise error(
        f"column {name!r} has type {kind}; a record key or partition is made of strings, integers, booleans, "
        "dates, timestamps and decimals: cast it in the source",
        column=name,
    )


# Arrow writes decimals as Java's BigDecimal.toString does.
_CAST_TO_TEXT = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_null,
    pa.types.is_large_string,
    pa.types.is_string_view,
)


def _python_text(column: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, datetime.date):
        found: str = _text(pa.array([value]), column, InvalidPartitionValueError)[0].as_py()
        return found
    raise InvalidPartitionValueError(
        f"partition column {column!r} has the value {value!r} of type {type(value).__name__}, which cannot "
        "become a folder name",
        column=column,
    )


def _may_be_empty(batch: pa.Table | pa.RecordBatch, name: str) -> bool:
    """Whether a column's texts may be empty; a number's text never is."""
    return not pa.types.is_integer(batch.schema.field(name).type)


def _is_blank(text: pa.Array) -> pa.Array:
    return pc.fill_null(pc.equal(pc.binary_length(text), 0), True)


def _refuse_blank(blank: pa.Array, names: Sequence[str]) -> None:
    count = pc.sum(blank).as_py()
    if count:
        raise InvalidRecordKeyError(
            f"record key {', '.join(names)} is null or empty in {count} rows, the first is row "
            f"{pc.index(blank, True).as_py()}; filter them in the source or choose another key",
            columns=list(names),
            rows=count,
        )


def _refuse_ambiguous(text: pa.Array, name: str, following: Sequence[str]) -> None:
    # Hudi splits "a:1,b:2" at ",b:". A value of "a" that has this text would make the key ambiguous, and so
    # would a value that reads like a null.
    found = pc.is_in(text, pa.array([_NULL_KEY, _EMPTY_KEY]))
    if following:
        found = pc.or_(found, pc.fill_null(pc.match_substring(text, f",{following[0]}:"), False))
    position = pc.index(found, True).as_py()
    if position >= 0:
        raise InvalidRecordKeyError(
            f"record key column {name!r} has the value {text[position].as_py()!r}, which makes a key of "
            "several columns ambiguous; change the value in the source or choose another key",
            column=name,
        )
