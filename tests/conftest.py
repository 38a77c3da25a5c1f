"""Settings that all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Tests that several suites run import from there.
pytest.register_assert_rewrite("tests.ingestion")

# Few examples a run, because there are many runs; `make soak` takes many. The machine may be
# busy with other things: no deadlines for single examples.
settings.register_profile(
    "project",
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("project")
