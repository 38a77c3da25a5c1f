"""The distribution of tests to workers of pytest-xdist, and their order.

Some tests wait for servers and for each other, others compute. Half of the workers begin with tests that
wait, half with tests that compute, so that the cores have work while a test waits. The two halves meet among
short tests.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# These tests share nothing, or only things that each worker has anyway.
_ONE_BY_ONE = ("tests/airflow/", "tests/packaging/test_engine_archive.py", "tests/spark/jobs/test_job.py")
_TOGETHER = {
    "tests/airflow/with_all_its_parts/test_standalone.py": "Airflow",
    "tests/processes/table/test_killed_job.py": "Spark Connect",
    "tests/processes/table/test_two_writers.py": "Spark Connect",
}
# The longest tests are at either end: an Airflow with all its parts, and all tests of one Spark session.
_FROM_WAITING_TO_COMPUTING = (
    "tests/airflow/with_all_its_parts/test_standalone.py",
    "tests/processes/table/test_killed_job.py",
    "tests/processes/table/test_two_writers.py",
    "tests/airflow/test_killed_services.py",
    "tests/processes/metastore/test_spark_on_metastore.py",
    "tests/processes/",
    "tests/airflow/",
    "tests/packaging/",
    "tests/unit/",
    "tests/spark/jobs/test_job.py",
    "tests/demo/",
    "tests/spark/",
)


def put_in_order(items: list[pytest.Item]) -> None:
    """Sort tests: those that wait come first, those that compute last."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    ranks = enumerate(_FROM_WAITING_TO_COMPUTING)
    return next((rank for rank, beginning in ranks if nodeid.startswith(beginning)), 0)


class FromBothEnds(LoadScopeScheduling):
    """Distributes tests by file; tests of one Spark session together, tests that share nothing one by one.

    Workers with an even number take tests from the front of the queue, workers with an odd number from its
    end.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in _TOGETHER:
            return _TOGETHER[file]
        if file.startswith(_ONE_BY_ONE):
            return nodeid
        if file.startswith("tests/unit/"):
            return nodeid.partition("[")[0]
        return "Spark" if file.startswith("tests/spark/") else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        # The base class takes the first.
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
