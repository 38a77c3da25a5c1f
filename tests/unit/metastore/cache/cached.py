"""The arguments of a replica's reader, and the misses of its reads."""

from __future__ import annotations

from airflow_provider.metastore import Metastore, PartitionSpec
from airflow_provider.metastore.cache.cached_store import CachedStore, MissReason
from airflow_provider.metastore.model.reader import Reader


def now(metastore: Metastore, table: str = "flights", txn_id: int | None = None) -> Reader:
    """The arguments of a reader that begins now."""
    snapshot = metastore.read_snapshot([("lake", table)], txn_id).tables[f"lake.{table}"]
    return {"valid_write_ids": snapshot.write_ids, "table_id": snapshot.table_id}


def missed(store: CachedStore) -> list[MissReason]:
    """The reasons of the misses since the last call."""
    reasons = list(store._misses.elements())
    store._misses.clear()
    return reasons


def change(metastore: Metastore, owner: str, txn_id: int | None = None) -> None:
    metastore.alter_table("lake", "flights", owner=owner, txn_id=txn_id)


def add(metastore: Metastore, month: str, txn_id: int | None = None) -> None:
    spec = PartitionSpec(("2013", month), f"/lake/flights/{month}")
    metastore.add_partitions("lake", "flights", [spec], txn_id=txn_id)
