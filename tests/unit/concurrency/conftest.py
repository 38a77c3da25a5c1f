"""Time in simulations."""

from __future__ import annotations

import pytest

from airflow_provider.concurrency.conflicts import pending_writes


@pytest.fixture(autouse=True)
def waiters_do_not_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters do not sleep, because each of their looks is a step of the simulation."""
    monkeypatch.setattr(pending_writes, "_LOOK_EVERY_SECONDS", 0.0)
