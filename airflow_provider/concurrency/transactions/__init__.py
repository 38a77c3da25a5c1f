"""TODO"""

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
    "commit_transaction",
    "insertions",
    "partition_specs",
    "recover_transactions",
    "settle_transactions",
]
