from __future__ import annotations

import datetime
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.exceptions import (
    InvalidPartitionValueError,
    InvalidRecordKeyError,
    MissingColumnError,
    NotATableError,
)
from airflow_provider.table.keys import (
    DEFAULT_PARTITION,
    escape_path_name,
    partition_path,
    partition_paths,
    partition_values,
    record_keys,
    unescape_path_name,
)
from airflow_provider.table.properties import TableConfig
from tests.unit.table.arrow_data import texts
from tests.unit.table.conftest import JvmTables

MOMENT = datetime.datetime(2024, 2, 3, 4, 5, 6, 789_012, tzinfo=datetime.UTC)


def config(*columns: str, hive_style: bool = True, url_encode: bool = True) -> TableConfig:
    return TableConfig(name="t", partition_fields=columns, hive_style=hive_style, url_encode=url_encode)


# --- record keys --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (pa.array(["a", "ü"]), ["a", "ü"]),
        (pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (pa.array([-1, 2**63 - 1], pa.int64()), ["-1", "9223372036854775807"]),
        (pa.array([0, 255], pa.uint8()), ["0", "255"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([MOMENT.date(), datetime.date(1969, 12, 31)]), ["2024-02-03", "1969-12-31"]),
        (pa.array([MOMENT], pa.timestamp("us", tz="UTC")), ["1706933106789012"]),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ns")), ["1706933106789012"]),
        (pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("s", tz="UTC")), ["1706933106000"]),
        (pa.array([Decimal("1.50"), Decimal("-0.05")]), ["1.50", "-0.05"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_one_column_is_the_key_itself(values: pa.Array, keys: list[str]) -> None:
    assert record_keys(pa.table({"id": values}), ["id"]).to_pylist() == keys


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_read_as_in_java(digits: int, scale: int) -> None:
    # Java's BigDecimal.toString and Python's str of a Decimal follow the same rule.
    value = Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale))
    column = pa.array([value], pa.decimal128(38, scale))
    assert record_keys(pa.table({"id": column}), ["id"]).to_pylist() == [str(value)]


def test_several_columns_are_joined_with_their_names() -> None:
    rows = pa.table({"a": [1, 2, None], "b": ["x", "", "y"], "c": [None, "", "z"]})
    assert record_keys(rows, ["a", "b", "c"]).to_pylist() == [
        "a:1,b:x,c:__null__",
        "a:2,b:__empty__,c:__empty__",
        "a:__null__,b:y,c:z",
    ]


def test_a_complex_key_generator_names_even_one_column() -> None:
    table = TableConfig(name="t", record_key_fields=("id",), partition_fields=("p", "q"))
    rows = pa.table({"id": [1, 2]})
    assert record_keys(rows, table).to_pylist() == ["id:1", "id:2"]
    assert record_keys(rows, ["id"]).to_pylist() == ["1", "2"]


def test_keys_of_jvm_tables(jvm_tables: JvmTables) -> None:
    for path in jvm_tables.base_files():
        stored = pq.read_table(path, partitioning=None)
        (column,) = [name for name in ("txn_id", "id") if name in stored.column_names]
        assert record_keys(stored, [column]).to_pylist() == stored["_hoodie_record_key"].to_pylist()


@pytest.mark.parametrize("values", [["a", None, None], ["a", "", None]])
def test_blank_keys_are_counted(values: list[str | None]) -> None:
    with pytest.raises(InvalidRecordKeyError, match="null or empty in 2 rows, the first is row 1") as caught:
        record_keys(pa.table({"id": values}), ["id"])
    assert caught.value.details == {"columns": ["id"], "rows": 2}


def test_keys_whose_every_column_is_blank_are_refused() -> None:
    with pytest.raises(InvalidRecordKeyError, match="a, b is null or empty in 1 rows, the first is row 1"):
        record_keys(pa.table({"a": [1, None], "b": [None, ""]}), ["a", "b"])


@given(st.lists(st.tuples(texts | st.none(), texts | st.none()), min_size=1, max_size=8))
@example([("x,b:y", "z"), ("x", "y,b:z")])
@example([(None, "x"), ("__null__", "x")])
@example([("", "x"), ("__empty__", "x")])
def test_different_values_never_make_the_same_key(values: list[tuple[str | None, str | None]]) -> None:
    rows = pa.table({"a": pa.array([a for a, _ in values], pa.string()), "b": [b for _, b in values]})
    try:
        keys = record_keys(rows, ["a", "b"]).to_pylist()
    except InvalidRecordKeyError:
        return
    assert len(set(keys)) == len(set(values))


@pytest.mark.parametrize(
    "values",
    [pa.array([1.5]), pa.array([b"x"]), pa.array([[1]]), pa.array([{"a": 1}])],
    ids=lambda v: str(v.type),
)
def test_types_that_make_no_key_are_refused(values: pa.Array) -> None:
    with pytest.raises(InvalidRecordKeyError, match="column 'id' has type"):
        record_keys(pa.table({"id": values}), ["id"])


def test_a_missing_key_column_is_named() -> None:
    with pytest.raises(MissingColumnError, match="'id' is not in the data, which has a, b"):
        record_keys(pa.table({"a": [1], "b": [2]}), ["id"])


def test_keys_of_no_rows() -> None:
    rows = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    assert record_keys(rows, ["a"]).to_pylist() == []
    assert record_keys(rows, ["a", "b"]).to_pylist() == []


# --- escaping -----------------------------------------------------------------------


def test_the_characters_that_hive_escapes() -> None:
    unsafe = [chr(code) for code in range(0x20)] + list("\x7f\"#%'*/:=?\\{[]^")
    safe = [chr(code) for code in range(0x20, 0x250) if chr(code) not in unsafe]
    for character in unsafe:
        assert escape_path_name(character) == f"%{ord(character):02X}"
    assert escape_path_name("".join(safe)) == "".join(safe)


@given(st.text())
@example("100%")
@example("%2")
@example("%zz")
@example("%25")
def test_any_text_survives_escaping(text: str) -> None:
    escaped = escape_path_name(text)
    assert "/" not in escaped
    assert unescape_path_name(escaped) == text


def test_what_is_not_escaped_stays() -> None:
    assert unescape_path_name("100% of %zz and %2") == "100% of %zz and %2"


# --- partition paths ----------------------------------------------------------------


@given(st.lists(texts | st.none(), min_size=1, max_size=3), st.booleans())
@example(["/", "..", "."], True)
@example(["..", ".", ".hoodie"], False)
@example([".hoodie/timeline", "%2E%2E", "\0"], False)
@example([DEFAULT_PARTITION, "", None], True)
@example([DEFAULT_PARTITION, "", None], False)
def test_any_values_survive_an_escaped_path(values: list[str | None], hive_style: bool) -> None:
    table = config(*[f"c{i}" for i in range(len(values))], hive_style=hive_style)
    path = partition_path(values, table)
    # Hive and Hudi have one folder for null and the empty text.
    assert partition_values(path, table) == tuple(value or None for value in values)
    # The folder is inside the table, as many levels deep as there are columns, and not Hudi's own.
    inside = Path("/table") / path
    assert os.path.normpath(inside) == str(inside)
    assert len(inside.parts) == 2 + len(values)
    assert not path.startswith(".hoodie")
    assert "\0" not in path


@given(st.lists(texts, min_size=2, max_size=2, unique=True).filter(all), st.booleans())
def test_different_values_have_different_folders(values: list[str], hive_style: bool) -> None:
    first, second = (partition_path([value], config("c", hive_style=hive_style)) for value in values)
    assert first != second


@pytest.mark.parametrize(
    ("value", "hive", "plain"),
    [
        ("eu", "c=eu", "eu"),
        (None, f"c={DEFAULT_PARTITION}", DEFAULT_PARTITION),
        ("", f"c={DEFAULT_PARTITION}", DEFAULT_PARTITION),
        (7, "c=7", "7"),
        (2**70, f"c={2**70}", str(2**70)),
        (True, "c=true", "true"),
        (MOMENT.date(), "c=2024-02-03", "2024-02-03"),
        (MOMENT, "c=1706933106789012", "1706933106789012"),
        (Decimal("1.50"), "c=1.50", "1.50"),
        ("a/b=c", "c=a%2Fb%3Dc", "a%2Fb%3Dc"),
        ("..", "c=..", "%2E."),
        (".hoodie", "c=.hoodie", "%2Ehoodie"),
        (DEFAULT_PARTITION, "c=%5F_HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_paths_of_one_value(value: object, hive: str, plain: str) -> None:
    assert partition_path([value], config("c")) == hive
    assert partition_path([value], config("c", hive_style=False)) == plain


@pytest.mark.parametrize("value", [1.5, b"x", [1]])
def test_values_that_make_no_folder_are_refused(value: object) -> None:
    with pytest.raises(InvalidPartitionValueError, match="partition column 'c'"):
        partition_path([value], config("c"))


def test_a_folder_name_has_at_most_255_bytes() -> None:
    assert len(partition_path(["x" * 253], config("c"))) == 255
    with pytest.raises(InvalidPartitionValueError, match="254 characters"):
        partition_path(["x" * 254], config("c"))
    with pytest.raises(InvalidPartitionValueError, match="127 characters"):
        partition_path(["ü" * 127], config("c"))


def test_the_number_of_values_is_that_of_the_columns() -> None:
    with pytest.raises(InvalidPartitionValueError, match="partitioned by"):
        partition_path(["a"], config("c", "d"))


@pytest.mark.parametrize(
    "value", ["..", ".", "a/../b", "/a", "a/", "a//b", ".hoodie", "x\0y", DEFAULT_PARTITION]
)
def test_without_escaping_values_that_leave_the_folder_are_refused(value: str) -> None:
    with pytest.raises(InvalidPartitionValueError, match="'c'"):
        partition_path([value], config("c", hive_style=False, url_encode=False))


@pytest.mark.parametrize("value", [".", "..", ".hoodie", "/x"])
def test_without_escaping_a_column_name_in_front_makes_any_value_a_folder(value: str) -> None:
    table = config("c", url_encode=False)
    assert partition_path([value], table) == f"c={value}"
    assert partition_values(f"c={value}", table) == (value,)
    with pytest.raises(InvalidPartitionValueError, match="not a folder name"):
        partition_path(["x/.."], table)


@pytest.mark.parametrize("hive_style", [True, False])
def test_without_escaping_a_single_value_may_have_levels(hive_style: bool) -> None:
    table = config("day", hive_style=hive_style, url_encode=False)
    path = partition_path(["2024/01/31"], table)
    assert path == ("day=2024/01/31" if hive_style else "2024/01/31")
    assert partition_values(path, table) == ("2024/01/31",)
    assert partition_values(partition_path(["a%2Fb"], table), table) == ("a%2Fb",)
    with pytest.raises(InvalidPartitionValueError, match="not a folder name"):
        partition_path(["2024/01", "x"], config("day", "c", hive_style=hive_style, url_encode=False))


@given(
    st.lists(st.tuples(texts | st.none(), st.none() | st.integers(-5, 5)), max_size=20),
    st.booleans(),
)
def test_paths_of_rows_are_those_of_their_values(
    rows: list[tuple[str | None, int | None]], hive_style: bool
) -> None:
    table = config("a", "b", hive_style=hive_style)
    first, second = pa.array([a for a, _ in rows], pa.string()), pa.array([b for _, b in rows], pa.int32())
    expected = [partition_path(row, table) for row in rows]
    for column in (first, first.dictionary_encode(), first.cast(pa.large_string())):
        batch = pa.table({"b": second, "a": pa.chunked_array([column[:3], column[3:]], column.type)})
        assert partition_paths(batch, table).to_pylist() == expected


def test_rows_of_a_table_without_partitions() -> None:
    assert partition_paths(pa.table({"a": [1, 2]}), config()).to_pylist() == ["", ""]
    assert partition_path([], config()) == ""
    assert partition_values("", config()) == ()


def test_rows_with_a_column_of_nothing_but_null() -> None:
    assert (
        partition_paths(pa.table({"a": pa.nulls(2)}), config("a")).to_pylist()
        == [f"a={DEFAULT_PARTITION}"] * 2
    )


def test_paths_of_jvm_tables(jvm_tables: JvmTables) -> None:
    for archive, column, hive_style in [
        ("rs_cow_v9_txns_simple_nometa", "region", True),
        ("rs_cow_v8_simple", "byteField", False),
    ]:
        root = jvm_tables.table(archive)
        table = config(column, hive_style=hive_style, url_encode=False)
        for path in root.rglob("*.parquet"):
            if ".hoodie" in path.parts:
                continue
            stored = pq.read_table(path, partitioning=None)
            folder = path.parent.relative_to(root).as_posix()
            assert set(partition_paths(stored, table).to_pylist()) == {folder}
            assert partition_values(folder, table) == (str(stored[column][0].as_py()),)


@pytest.mark.parametrize("path", ["", "x=1", "c", "c=1/d=2", "=1"])
def test_folders_that_are_no_partition(path: str) -> None:
    with pytest.raises(NotATableError, match="is not a partition of table 't'"):
        partition_values(path, config("c") if path != "c=1/d=2" else config("c", "d", "e"))


def test_a_folder_in_a_table_without_partitions() -> None:
    with pytest.raises(NotATableError, match="is not a partition"):
        partition_values("c=1", config())
