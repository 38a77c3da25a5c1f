"""Replication: databases of one metastore, and their tables' data, brought to another one under the same ids.

:class:`Replicator` brings the state of the source over, and from then on follows its notification log event
    by
event, without knowing where transactions begin and end. ``policy`` says what goes where,
``table_data`` what comes of a table's data: ``hudi_tables`` brings the commits of a Hudi table, at COMMIT_TXN
only, through the commit protocol of the target's table, and ``plain_tables`` the files of any other one,
both by ``copying``. ``failovers`` changes the sides. How far a replication is, which transaction stands for
which, and how an event changes the target's catalog is :mod:`airflow_provider.metastore.replication`'s
business.

Reading begins at ``replicator``. What may be touched: what an event does, how files are copied. Every step
may be killed and done again, by two at once: ``tests/unit/replication`` kills and doubles replicators at
each.
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
from airflow_provider.replication.replicator import Pass, ReplicationSettings, Replicator
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
