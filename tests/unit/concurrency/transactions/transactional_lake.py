"""Registered tables, and writes into them in and outside of transactions."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiTableBuilder

from airflow_provider.concurrency import pending_instants
from airflow_provider.concurrency.conflicts.open_transactions import instants_of_open_transactions
from airflow_provider.concurrency.transactions.transactions import abort_transaction, commit_transaction
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import Column, Metastore, TxnState, ValidTxnList, open_metastore
from airflow_provider.table import HudiTable, snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.int64())])


@cache
def new_database() -> str:
    """An unused metastore, to be copied: migrating a new database takes longer than most tests."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    metastore = open_metastore(f"sqlite:///{folder}/new.db")
    metastore.create_database("lake")
    metastore.close()
    return f"{folder}/new.db"


def database_of_lake(root: Path, url: str | None = None) -> Metastore:
    """A metastore with a database ``lake``: in a new SQLite file, or in the new database of the URL."""
    if url is None:
        shutil.copy(new_database(), root / "metastore.db")
        return open_metastore(f"sqlite:///{root}/metastore.db")
    made: Metastore = open_metastore(url)
    made.create_database("lake")
    return made


class Lake:
    """Two registered tables, and writes in and outside of transactions.

    :param root: the folder of the tables.
    :param url: URL of the metastore's database, which is new; by default a file in this folder.
    :param options: arguments of :meth:`HudiTable.create`, for each table.
    """

    def __init__(self, root: Path, url: str | None = None, **options: Any) -> None:
        self.root, self.options = root, options
        self.metastore: Metastore = database_of_lake(root, url)
        self.tables: dict[str, HudiTable] = {}
        for name in ("trips", "riders"):
            self.create(name)

    def create(self, name: str) -> None:
        """Create one more table of this kind, with this name."""
        self.tables[name] = table = HudiTable.create(
            f"{self.root}/{name}",
            name=name,
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["city"],
            **self.options,
        )
        self.metastore.create_table(
            "lake",
            name,
            location=table.location,
            schema=[Column("id", "bigint"), Column("fare", "bigint")],
            partition_keys=[Column("city", "string")],
        )

    def begin(self, **options: Any) -> int:
        return self.metastore.open_txn("me", "here", commit_on_recovery=False, **options)

    def write(
        self,
        name: str,
        rows: dict[int, int],
        txn_id: int | None = None,
        operation: str = "upsert",
        **job: Any,
    ) -> str:
        """Write rows, as a transaction of its own when none is given."""
        own = txn_id is None
        txn_id = self.metastore.open_txn("me", "here") if txn_id is None else txn_id
        write_id = self.metastore.allocate_table_write_id(txn_id, "lake", name)
        data = data_of(rows)
        ids = {"txn_id": txn_id, "write_id": write_id, "txn_goes_on": not own}
        try:
            result = ingest_arrow(self.tables[name], data, operation, **ids, **job)
        except BaseException:
            if own:
                self.metastore.abort_txn(txn_id)
            raise
        self.metastore.record_write(txn_id, "lake", name, result["instant"])
        if own:
            self.metastore.commit_txn(txn_id)
        return str(result["instant"])

    def seen(
        self, name: str, txn_id: int | None = None, valid_txns: ValidTxnList | None = None
    ) -> dict[int, int]:
        """The rows of a table that a reader with a snapshot sees."""
        state = self.metastore.read_snapshot([("lake", name)], txn_id, valid_txns=valid_txns)
        write_ids = state.tables[f"lake.{name}"].write_ids
        return rows_of(snapshot(self.tables[name], valid_write_ids=write_ids).to_table())

    def plain(self, name: str) -> dict[int, int]:
        """The rows of a table that readers without transactions see: this package and hudi-rs."""
        ours = rows_of(snapshot(self.tables[name]).to_table())
        batches = HudiTableBuilder.from_base_uri(self.tables[name].location).build().read()
        assert rows_of(pa.Table.from_batches(batches)) == ours if batches else not ours
        return ours

    def state(self, txn_id: int) -> TxnState:
        return self.metastore.get_txn(txn_id).state

    def commit(self, txn_id: int) -> int:
        return commit_transaction(self.metastore, txn_id)

    def abort(self, txn_id: int) -> int:
        return abort_transaction(self.metastore, txn_id)

    def check_nothing_is_left(self) -> None:
        for table in self.tables.values():
            assert instants_of_open_transactions(table.storage) == {}
            assert pending_instants(table) == []
            assert table.timeline().pending() == ()


def data_of(rows: dict[int, int]) -> pa.Table:
    """Rows from fares by id; ids from 100 on are in another partition."""
    cities = ["sf" if key < 100 else "la" for key in rows]
    return pa.table({"id": list(rows), "city": cities, "fare": list(rows.values())}, schema=SCHEMA)


def rows_of(table: pa.Table) -> dict[int, int]:
    rows = table.select(["id", "fare"]).to_pylist()
    found = {row["id"]: row["fare"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found
