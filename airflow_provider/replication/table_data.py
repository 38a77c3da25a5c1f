"""The data of tables of any kind: it is copied to the target as of a moment of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from airflow_provider.exceptions import NoSuchObjectError, ReplicationError
from airflow_provider.metastore import (
    AnyMetastore,
    NotificationEvent,
    TableInfo,
    ValidWriteIdList,
)
from airflow_provider.metastore.model import (
    HUDI,
    NO_WRITE_ID,
    PROVIDER,
    TableState,
    decode_partition,
    decode_table,
    decode_write_id,
)
from airflow_provider.replication.copying import Copier
from airflow_provider.replication.hudi_tables import TableReplication, is_hudi_table
from airflow_provider.replication.plain_tables import bring_files
from airflow_provider.replication.policy import ReplicationPolicy
from airflow_provider.table.storage import Storage


@dataclass
class TableData:
    """Copies the data of tables to the target.

    :param policy: the databases and locations to replicate.
    :param source: the source's metastore.
    :param target: the target's metastore.
    :param copier: copies files.
    :param count: called with the number of copied bytes.
    :param step: called with a name before each step; an error that it raises stops the copy.
    :param patience: see :class:`TableReplication`.
    """

    policy: ReplicationPolicy
    source: AnyMetastore
    target: AnyMetastore
    copier: Copier
    count: Callable[[int], None]
    step: Callable[[str], None]
    patience: float

    def bring(self, table: TableInfo, seen: ValidWriteIdList, mapped: dict[int, int]) -> None:
        """Copy one table's data to the target.

        :param table: the target's version of the table.
        :param seen: the write ids that a reader of that moment sees.
        :param mapped: the target's open transactions by the source's transactions.
        :raises ReplicationError: when a file is missing at the source; the error names it.
        :raises UnsupportedTableError: when the table is a Hudi table that this package does not write.
        """
        if not table.location:
            return  # a view has no data
        source = Storage(self.policy.source_location(table.location), self.policy.source_options)
        target = Storage(table.location, self.policy.target_options)
        if not is_hudi_table(source):
            if table.parameters.get(PROVIDER, "").lower() != HUDI and not is_hudi_table(target):
                self._bring_plain_table(table, source.root, seen)
            elif self._is_registered(source.root):
                raise ReplicationError(
                    f"table {table.full_name}: {source.root} is no Hudi table, or no longer one, and the "
                    "source's metastore has it; restore it, or drop it there",
                    table=table.full_name,
                )
            return
        replication = TableReplication(
            source,
            target,
            self.policy.name,
            self.copier,
            target_txn=mapped.get,
            step=self.step,
            patience=self.patience,
        )
        with self._counted():
            replication.run(seen)

    def _bring_plain_table(self, table: TableInfo, source: str, seen: ValidWriteIdList) -> None:
        try:
            found = self.target.get_partitions(table.database, table.name)
        except NoSuchObjectError:
            # The target creates the table after this, and its partitions by later events.
            self._bring_files(source, table.location, seen, deletes=False)
            return
        self._bring_files(source, table.location, seen)
        for each in found:
            if not each.location.startswith(f"{table.location.rstrip('/')}/"):
                self._bring_files(self.policy.source_location(each.location), each.location, seen)

    def bring_files_of(self, event: NotificationEvent) -> None:
        """Copy the files of a table that is no Hudi table, after a change outside of a transaction."""
        message = event.message
        described = str(message.get("tableObjAfterJson") or message["tableObjJson"])
        if decode_write_id(described) != NO_WRITE_ID:
            return  # a transaction made the change, and its data comes with the COMMIT_TXN event
        table = decode_table(described)
        if not table.location or is_hudi_table(Storage(table.location, self.policy.source_options)):
            return
        texts = [*message.get("partitionListJson", ()), message.get("partitionObjAfterJson")]
        texts.append(message.get("ptnObjJson"))
        places = [decode_partition(text).location for text in texts if text] or [table.location]
        for place in places:
            self._bring_files(place, self.policy.scope.location(place))

    def bring_partitions_elsewhere(self, each: TableState) -> None:
        """Copy the partitions outside of the folder of a table that is no Hudi table."""
        inside = f"{each.table.location.rstrip('/')}/"
        outside = [one.location for one in each.partitions if not one.location.startswith(inside)]
        if outside and not is_hudi_table(Storage(each.table.location, self.policy.source_options)):
            for place in outside:
                self._bring_files(place, self.policy.scope.location(place), each.write_ids, deletes=False)

    def _bring_files(
        self, place: str, to: str, seen: ValidWriteIdList | None = None, *, deletes: bool = True
    ) -> None:
        self.step(f"bring the files of {place}")
        source, target = Storage(place, self.policy.source_options), Storage(to, self.policy.target_options)
        with self._counted():
            bring_files(source, target, self.copier, seen, deletes=deletes)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count, for the replication's status, the bytes that a ``with`` block copies."""
        before = self.copier.bytes_copied
        try:
            yield
        finally:
            if copied := self.copier.bytes_copied - before:
                self.count(copied)

    def _is_registered(self, location: str) -> bool:
        plain = location.removeprefix("file://").rstrip("/")
        for database in self.policy.scope.databases:
            with suppress(NoSuchObjectError):
                for name in self.source.list_tables(database):
                    table = self.source.get_table(database, name)
                    if table.location.removeprefix("file://").rstrip("/") == plain:
                        return True
        return False
