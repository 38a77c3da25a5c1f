"""Settings that all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.workers import ByServers


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByServers | None:
    """For ``--dist loadscope``."""
    return ByServers(config, log) if config.getoption("dist") == "loadscope" else None


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
