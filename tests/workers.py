"""Which tests go to one worker of pytest-xdist, because they share what takes long to start."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# What these tests share each worker has anyway, or nothing.
_ONE_BY_ONE = ("tests/airflow/", "tests/packaging/test_engine_archive.py", "tests/spark/test_job.py")
_TOGETHER = {
    "tests/airflow/test_standalone.py": "Airflow",
    "tests/processes/test_killed_job.py": "Spark Connect",
    "tests/processes/test_two_writers.py": "Spark Connect",
}


class ByServers(LoadScopeScheduling):
    """By file; but all tests of one Spark session go together, and those that share nothing one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in _TOGETHER:
            return _TOGETHER[file]
        if file.startswith(_ONE_BY_ONE):
            return nodeid
        return "Spark" if file.startswith("tests/spark/") else file
