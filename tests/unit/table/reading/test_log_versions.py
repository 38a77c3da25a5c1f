"""Log files that are larger than the memory of a merge: the same rows, by way of a temporary file.

:mod:`tests.unit.table.real_tables.test_tables_of_the_real_hudi` reads the JVM's tables in this way.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError, InvalidInputError, StorageFullError
from airflow_provider.table.files import WrappedValue
from airflow_provider.table.reading import merge_memory
from airflow_provider.table.reading.log_versions import _SpilledVersions
from airflow_provider.table.reading.merged_rows import MergedRows
from tests.unit.table.reading.logged import COLUMNS, LOG_FILE, Logged

KEYS = ("a", "b", "c", "d", "e", "é", "😀")
MANY = tuple(f"k{number}" for number in range(300))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open, also those that are deleted already."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += str(descriptor.readlink()).startswith(str(folder))
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


def large(folder: Path) -> Logged:
    """Three blocks with 300 rows each, over a base file with two of their keys and two others."""
    made = Logged(folder / "t").base(("k1", 0, 0), ("x", 0, 0), ("y", 0, 0), ("k2", 0, 9))
    for number in (1, 2, 3):
        made.rows(f"00{number}", *((key, number, 5) for key in MANY))
    return made


def rows_of(made: Logged, memory: int | None) -> list[tuple[Any, ...]]:
    reader, file_slice = made.opened(memory)
    found = pa.concat_tables([COLUMNS.empty_table(), *reader.rows(file_slice, COLUMNS.names)])
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


# --- the same rows ------------------------------------------------------------------------------

_numbers = st.none() | st.integers(0, 5)
_rows = st.lists(st.tuples(st.sampled_from(KEYS), _numbers, _numbers), min_size=1, max_size=6)
_blocks = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), _rows),
        st.tuples(st.sampled_from(["only v", "only ts"]), _rows),
        st.tuples(st.just("delete"), st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 5))),
        st.tuples(st.just("roll back"), st.none()),
        st.tuples(st.just("cut off"), st.none()),
    ),
    min_size=1,
    max_size=8,
)
_base = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 5), st.integers(0, 5)))


@given(_base, _blocks, st.sampled_from(["ts", None]), st.sampled_from([1, 100, 400, 2_000]))
def test_whatever_is_logged_a_small_memory_shows_the_same_rows(
    base: dict[str, tuple[int, int]], blocks: list[tuple[str, Any]], ordering: str | None, memory: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Logged(Path(folder) / "t", ordering)
        if base:
            made.base(*((key, *values) for key, values in base.items()))
        for number, (kind, said) in enumerate(blocks, 1):
            instant = f"{number:03}"
            if kind == "delete":
                key, value = said
                order = {} if value is None else {"ordering": WrappedValue("LongWrapper", value)}
                made.deletes(instant, key, **order)
            elif kind == "roll back":
                made.rolls_back(instant, f"{number - 1:03}")
            elif kind == "cut off":
                made.rows(instant, ("a", 9, 9)).cut_off()
            else:
                made.rows(instant, *said, only=kind.removeprefix("only ") if kind != "rows" else None)
        whole, small = rows_of(made, None), rows_of(made, memory)
    assert Counter(small) == Counter(whole)


@pytest.mark.parametrize("memory", [1, 30_000, 60_000, 90_000])
def test_of_equal_versions_the_last_block_counts(temporary: Path, tmp_path: Path, memory: int) -> None:
    """Whether the file gets one block at a time, or several."""
    found = {key: v for key, v, ts in rows_of(large(tmp_path), memory) if ts == 5}
    assert found == {key: 3 for key in MANY if key != "k2"}


def test_rows_of_the_base_file_keep_their_order(temporary: Path, tmp_path: Path) -> None:
    """A clustering may have given it to them, and a compaction writes them as it reads them."""
    found = rows_of(large(tmp_path), 1)
    assert [row for row in found if row[2] in (0, 9)] == [("x", 0, 0), ("y", 0, 0), ("k2", 0, 9)]
    assert len(found) == 302


# --- how much is in memory --------------------------------------------------------------------


def test_a_part_is_no_larger_than_half_of_the_memory(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half is for the newest versions. Every key is in one part."""
    parts = []

    def seen(spilled: _SpilledVersions, size: int) -> Iterator[Any]:
        for part in read(spilled, size):
            parts.append((part.batch.rows.nbytes, set(part.batch.keys.to_pylist())))
            yield part

    read = _SpilledVersions.parts
    monkeypatch.setattr(_SpilledVersions, "parts", seen)
    made, memory = large(tmp_path), 16_000
    assert len(rows_of(made, memory)) == 302
    assert len(parts) > 4
    assert max(size for size, _ in parts) <= memory / 2
    assert sum(len(keys) for _, keys in parts) == len(MANY)


def test_what_fits_into_memory_is_in_no_file(temporary: Path, tmp_path: Path) -> None:
    temporary.rmdir()  # so a temporary file would fail
    made = large(tmp_path)
    assert len(rows_of(made, 1_000_000)) == 302
    with pytest.raises(FileNotFoundError):
        rows_of(made, 1_000)


def test_the_tables_option_says_how_much(tmp_path: Path) -> None:
    config = Logged(tmp_path / "t").table.config
    assert merge_memory(config) == 2**30
    assert merge_memory(config, compacts=True) == 2**30
    of = {"hoodie.memory.merge.max.size": "7", "hoodie.unknown": "x"}
    told = replace(config, raw={**config.raw, **of})
    assert (merge_memory(told), merge_memory(told, compacts=True)) == (7, 7)
    of["hoodie.memory.compaction.max.size"] = "8"
    told = replace(config, raw={**config.raw, **of})
    assert (merge_memory(told), merge_memory(told, compacts=True)) == (7, 8)
    told = replace(config, raw={**config.raw, "hoodie.memory.merge.max.size": "1GB"})
    with pytest.raises(
        InvalidInputError, match=r"hoodie.memory.merge.max.size must be: whole number of bytes"
    ):
        merge_memory(told)


# --- the temporary file -----------------------------------------------------------------------


def test_it_is_gone_after_the_read(temporary: Path, tmp_path: Path) -> None:
    reader, file_slice = large(tmp_path).opened(1)
    assert open_files(temporary) == 0
    rows = reader.rows(file_slice, COLUMNS.names)
    next(rows)
    assert open_files(temporary) == 1
    for _ in rows:
        pass
    assert open_files(temporary) == 0
    assert not list(temporary.iterdir())


def test_it_is_gone_after_an_error(temporary: Path, tmp_path: Path) -> None:
    made = large(tmp_path)
    reader, file_slice = made.opened(1)
    path = Path(made.table.location, LOG_FILE)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"_hoodie_record_key") + 2_000  # in the rows of the last block
    content[at : at + 2_000] = b"\xff" * 2_000
    path.write_bytes(content)
    with pytest.raises(CorruptTableError) as caught:
        list(reader.rows(file_slice, COLUMNS.names))
    assert caught.tb, "which keeps what the reader had"
    assert open_files(temporary) == 0
    assert not list(temporary.iterdir())


def test_it_is_gone_after_a_reader_that_stops(temporary: Path, tmp_path: Path) -> None:
    reader, file_slice = large(tmp_path).opened(1)
    rows = reader.rows(file_slice, COLUMNS.names)
    next(rows)
    assert open_files(temporary) == 1
    assert not list(temporary.iterdir()), "a killed process leaves nothing behind"
    del rows
    gc.collect()
    assert open_files(temporary) == 0


def test_it_is_gone_after_a_scan_that_is_abandoned(temporary: Path, tmp_path: Path) -> None:
    reader, file_slice = large(tmp_path).opened(1)
    batches = MergedRows(reader, [file_slice]).to_batches()
    next(batches)
    del batches
    deadline = time.monotonic() + 60
    while open_files(temporary) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)  # Arrow's threads end the scan
    assert open_files(temporary) == 0
    assert not list(temporary.iterdir())


def test_a_full_disk_is_told_with_its_folder(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> Any:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageFullError, match=f"{temporary}.*TMPDIR.*raise hoodie.memory.merge.max.size"):
        rows_of(large(tmp_path), 1)
