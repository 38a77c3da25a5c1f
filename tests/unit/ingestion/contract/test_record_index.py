"""Writes into tables with indexes of their keys, in this process."""

import pytest

from tests.ingestion_contract.record_index import *  # noqa: F403


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table_type(request: pytest.FixtureRequest) -> str:
    """Both types of tables."""
    return str(request.param)
