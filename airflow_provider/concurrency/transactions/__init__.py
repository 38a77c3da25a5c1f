"""The end of a metastore transaction at its tables, and the recovery of transactions whose owners died."""

from airflow_provider.concurrency.transactions.predecessors import commit_predecessors
from airflow_provider.concurrency.transactions.recovery import recover_transactions
from airflow_provider.concurrency.transactions.transactions import (
    abort_transaction,
    commit_transaction,
    insertions,
    partition_specs,
    settle_transactions,
)

__all__ = [
    "abort_transaction",
    "commit_predecessors",
    "commit_transaction",
    "insertions",
    "partition_specs",
    "recover_transactions",
    "settle_transactions",
]
