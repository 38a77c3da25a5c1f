"""Replication copies databases of one metastore, and their tables' data, to another one under the same ids.

:class:`Replicator` copies the state of the source. From then on it follows the source's log of events, and
applies each event by itself, not transaction by transaction. ``policy`` names the databases and locations.
``table_data`` chooses how a table's data is copied: ``hudi_tables`` copies the commits of a Hudi table, at
COMMIT_TXN only, through the commit protocol of the target's table; ``plain_tables`` copies the files of any
other table. ``copying`` copies files for both. ``sides`` tells whether a metastore is the source;
``failovers`` changes the sides, and ``ending`` ends a replication.
:mod:`airflow_provider.metastore.replication` keeps the position, and applies events to the target's catalog.

Begin with ``replicator``. A change may add an event's effect, or another way to copy files. Every step must
be repeatable after a kill, and by two replicators at once: ``tests/unit/replication`` tries this at each
step.
"""

from airflow_provider.replication.copying import CopySettings
from airflow_provider.replication.ending import EndedReplication, end_replication
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
from airflow_provider.replication.sides import is_source_of
from airflow_provider.replication.status import ReplicationLag, replication_lag, replications

__all__ = [
    "CopySettings",
    "Divergence",
    "EndedReplication",
    "Failover",
    "LackingTransaction",
    "Pass",
    "ReplicationLag",
    "ReplicationPolicy",
    "ReplicationSettings",
    "Replicator",
    "abort_failover",
    "back_name",
    "end_replication",
    "failover",
    "follow_after_promotion",
    "is_source_of",
    "lacking_transactions",
    "promote",
    "replication_lag",
    "replications",
]
