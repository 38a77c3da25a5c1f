"""Tables that are written in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ingestion_contract.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Tables in a folder of the test's own."""
    return Lake(tmp_path / "lake")
