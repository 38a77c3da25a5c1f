"""Settings of the tests without Airflow, Spark and servers."""

from __future__ import annotations

import pytest

from airflow_provider.concurrency.write import committing


@pytest.fixture(autouse=True)
def short_merges_are_short_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any merge count as short: under half a second it would depend on how busy the machine is."""
    monkeypatch.setattr(committing, "SHORT_TURN_SECONDS", 10.0)
