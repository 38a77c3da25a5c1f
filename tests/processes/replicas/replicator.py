"""A replicator as a process: it follows the source for some seconds, and prints a line at its first step.

``python -m tests.processes.replicas.replicator SOURCE_URL TARGET_URL FOLDER SECONDS``
"""

from __future__ import annotations

import sys

from airflow_provider.metastore import open_metastore
from airflow_provider.replication import ReplicationPolicy, ReplicationSettings, Replicator


def main(source: str, target: str, folder: str, seconds: str) -> None:
    """Follow the source, and copy the folder's ``source`` to its ``target``."""
    has_begun = False

    def step(_: str) -> None:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            print(flush=True)

    policy = ReplicationPolicy("dr", {"lake": "lake_copy"}, {f"{folder}/source": f"{folder}/target"})
    one, other = open_metastore(source), open_metastore(target)
    settings = ReplicationSettings(lease_seconds=0.2)
    Replicator(policy, one, other, settings=settings, step=step).follow(float(seconds), poll_seconds=0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
