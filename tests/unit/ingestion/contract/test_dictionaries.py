"""Merges with base files whose strings may come as dictionaries: they are compared, taken over or moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider.table.files import BaseFileReader
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.ingestion_contract.merge_semantics import PARTIAL, set_properties

SCHEMA = pa.schema({"id": pa.int64(), "at": pa.string(), "text": pa.string(), "other": pa.string()})
COUNT = 1_000


def row(id_: int, at: str = "2026-02", text: str | None = None, other: str | None = "kept") -> dict[str, Any]:
    return {"id": id_, "at": at, "text": text or f"text {id_ % 3}", "other": other}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a reader was asked for dictionaries, reader by reader."""
    found, init = [], BaseFileReader.__init__

    def noted(self: BaseFileReader, *arguments: Any, dictionaries: bool = False) -> None:
        found.append(dictionaries)
        init(self, *arguments, dictionaries=dictionaries)

    monkeypatch.setattr(BaseFileReader, "__init__", noted)
    return found


def started(tmp_path: Path, ordering_field: str | None) -> LakeTable:
    table = Lake(tmp_path).create(SCHEMA, ordering_field=ordering_field)
    table.ingest("bulk_insert", [row(n) for n in range(COUNT)])
    return table


def test_strings_that_are_moved_are_dictionaries(tmp_path: Path, asked: list[bool]) -> None:
    table = started(tmp_path, None)
    table.ingest("upsert", [row(5, text="new"), row(COUNT)])
    assert any(asked)
    table.check_now([row(n, text="new" if n == 5 else None) for n in range(COUNT + 1)])


def test_a_string_that_orders_versions_is_compared(tmp_path: Path, asked: list[bool]) -> None:
    table = started(tmp_path, "at")
    table.ingest("upsert", [row(5, "2026-01", "older"), row(6, "2026-03", "newer")])
    assert not any(asked)
    expected = [row(n) for n in range(COUNT)]
    expected[6] = row(6, "2026-03", "newer")
    table.check_now(expected)


def test_strings_that_a_partial_update_keeps_are_taken_over(tmp_path: Path, asked: list[bool]) -> None:
    table = started(tmp_path, None)
    set_properties(table, {PARTIAL: "IGNORE_DEFAULTS"})
    table.ingest("upsert", [row(5, text="new", other=None)])
    assert not any(asked)
    table.check_now([row(n, text="new" if n == 5 else None) for n in range(COUNT)])
