"""Processes that have all slow imports done, and share nothing.

A pytest worker has one server of forks. At its first fork it imports the modules of one list, for all tests.
A process that imports them itself takes half a second of CPU or more.
"""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.processes.locks.contender",
        "tests.processes.replicas.processes",
        "tests.processes.table.ingestion",
        "tests.processes.table.victims",
        "airflow_provider.locks.database",
        "airflow_provider.locks.metastore",
        "airflow_provider.locks.storage",
        "airflow_provider.locks.zookeeper",
        "airflow_provider.metastore.api.metastore",
        "airflow_provider.metastore.thrift.client.client",
        "psycopg",
        "s3fs",
        "sqlalchemy.dialects.postgresql",
    ]
)
