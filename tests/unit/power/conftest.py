"""A fixture that makes the order of forcing the same in each run."""

from __future__ import annotations

import pytest

from airflow_provider.table.storage import durability


@pytest.fixture(autouse=True)
def forced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force files without threads, so that a run can be repeated."""
    monkeypatch.setattr(durability, "_ONE_BY_ONE", 10_000)
