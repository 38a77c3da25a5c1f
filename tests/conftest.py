"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests import sweep
from tests.reaper import pytest_configure
from tests.workers import FromBothEnds, put_in_order

__all__ = ["pytest_configure"]


def pytest_report_header() -> str:
    return sweep.describe()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FromBothEnds | None:
    """For ``--dist loadscope``."""
    return FromBothEnds(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A push tries each test of Spark with one source and reader, and of a kill with one kind of Spark.

    ``SWEEP=all`` tries all.
    """
    here = Path(__file__).parent
    for folder, names in {"spark": ("source", "reader"), "airflow": ("where",)}.items():
        config.hook.pytest_deselected(items=sweep.one_value_a_test(items, here / folder, *names))
    put_in_order(items)


def pytest_collection_finish() -> None:
    """The garbage collector passes over what all tests import: it takes a twentieth of the time otherwise."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Undo what a Spark Connect client or an Airflow task of an earlier test left in this worker."""
    for name in [*os.environ]:
        if name == "SPARK_CONNECT_MODE_ENABLED" or name.startswith("AIRFLOW_CTX_"):
            del os.environ[name]


# Tests that several suites run import from there.
pytest.register_assert_rewrite("tests.ingestion_contract")

# A run takes few examples, because there are many runs; `make soak` takes many. Single examples have no
# deadlines, because the machine may be busy with other work.
settings.register_profile(
    "project",
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("project")
