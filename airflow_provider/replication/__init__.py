"""Replication: databases of one metastore, and their tables' data, brought to another one under the same ids.

:class:`Replicator` brings the state of the source over. From then on it follows the source's log of events,
one by one, without knowing where transactions begin and end. ``policy`` says what goes where. ``table_data``
says what comes of a table's data: ``hudi_tables`` brings the commits of a Hudi table, at COMMIT_TXN only,
through the commit protocol of the target's table; ``plain_tables`` brings the files of any other one.
``copying`` copies files for both. ``failovers`` changes the sides. How far a replication is, and how an event
changes the target's catalog, is :mod:`airflow_provider.metastore.replication`'s business.

Reading begins at ``replicator``. What may be touched: what an event does, and how files are copied. Every
step may be killed and done again, by two at once: ``tests/unit/replication`` does that at each.
"""

from airflow_provider.replication.copying import CopySettings
from airflow_provider.replication.failovers import (
    Divergence,
    Failover,
    LackingTransaction,
    abort_failover,
    back_name,
    failover,
    follow_after_promotion,
    lacking_transactions,
    promote,
)
from airflow_provider.replication.policy import ReplicationPolicy
from airflow_provider.replication.replicator import Pass, Replicator
from airflow_provider.replication.settings import ReplicationSettings
from airflow_provider.replication.status import ReplicationLag, replication_lag, replications

__all__ = [
    "CopySettings",
    "Divergence",
    "Failover",
    "LackingTransaction",
    "Pass",
    "ReplicationLag",
    "ReplicationPolicy",
    "ReplicationSettings",
    "Replicator",
    "abort_failover",
    "back_name",
    "failover",
    "follow_after_promotion",
    "lacking_transactions",
    "promote",
    "replication_lag",
    "replications",
]
