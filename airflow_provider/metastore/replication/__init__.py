"""The target's half of a replication in the metastore's database: position, lease, transactions, events.

The modules hold functions of one connection. ``policies`` keeps a replication's position and lease,
``transactions`` maps transactions of the source and forces its write ids, ``events`` applies the events of
the source's catalog, and ``state`` copies a whole state of the source. All of them are idempotent. ``target``
puts them together to what a replicator asks for.
:mod:`airflow_provider.replication` copies the data.
"""

from airflow_provider.metastore.replication.policies import (
    ensure_policy_of_client,
    policies,
    set_parameters,
)
from airflow_provider.metastore.replication.state import read_source
from airflow_provider.metastore.replication.target import TargetInDatabase
from airflow_provider.metastore.replication.transactions import (
    bring_write_ids,
    end_txn,
    force_write_id,
    forget_write_ids,
    map_txn,
    mapped_txns,
    target_txn_of,
)

__all__ = [
    "TargetInDatabase",
    "bring_write_ids",
    "end_txn",
    "ensure_policy_of_client",
    "force_write_id",
    "forget_write_ids",
    "map_txn",
    "mapped_txns",
    "policies",
    "read_source",
    "set_parameters",
    "target_txn_of",
]
