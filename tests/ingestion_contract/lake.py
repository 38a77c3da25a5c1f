"""Tables under test: written by this package, and read by several readers that must agree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from airflow_provider.concurrency.heartbeats.heartbeat import HEARTBEAT_FOLDER
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.table import HudiTable, snapshot

Rows = Sequence[Mapping[str, Any]]

KIB = 1024


class Lake:
    """Makes tables."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0

    def create(self, schema: pa.Schema, record_key: Sequence[str] = ("id",), **options: Any) -> LakeTable:
        """Create an empty table."""
        self._count += 1
        location = str(self.root / f"t{self._count}")
        HudiTable.create(location, name="t", schema=schema, record_key=record_key, **options)
        return self.open(location)

    def open(self, location: str) -> LakeTable:
        """Open an existing table."""
        return LakeTable(location)


class LakeTable:
    """One table, written in this process."""

    def __init__(self, location: str) -> None:
        self.location = location

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(self.location)

    def ingest(self, operation: str, rows: Rows | pa.Table, **job: Any) -> dict[str, Any]:
        """Write rows given in Python; columns that no row has are left out."""
        return self.write(operation, self.arrow(rows), **job)

    def write(self, operation: str, rows: pa.Table, **job: Any) -> dict[str, Any]:
        """Write rows by the ingestion under test."""
        return ingest_arrow(self.location, rows, operation, **job)

    def arrow(self, rows: Rows | pa.Table) -> pa.Table:
        """Rows with the table's types; columns that no row has are left out."""
        if isinstance(rows, pa.Table):
            return rows
        names = {name for row in rows for name in row}
        fields = [field for field in self.table.schema if field.name in names]
        return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))

    def rows(self, as_of: str | None = None) -> list[dict[str, Any]]:
        """The rows that this package reads."""
        return in_order(snapshot(self.table, as_of).to_table().to_pylist())

    def files(self) -> dict[str, list[tuple[str, int]]]:
        """File id and rows of every live file group, by partition."""
        view = self.table.view()
        return {
            partition: [
                (base_file.file_id, pa.parquet.read_metadata(f"{self.location}/{base_file.path}").num_rows)
                for base_file in view.base_files(partition)
            ]
            for partition in view.partitions()
        }

    def check(self, expected: Rows | None = None) -> None:
        """Check that all readers agree: on the present, every commit, every partition and every change."""
        ours = self.rows()
        self.check_now(ours if expected is None else expected)
        commits = self.table.timeline().commits()
        for commit in commits:
            self.check_readers(commit.requested_time, self.rows(commit.requested_time))
        self._check_partitions(ours)
        self._check_changes(commits)

    def check_now(self, expected: Rows) -> None:
        """Check that all readers see these rows, and that writes without a commit have left no file."""
        assert self.rows() == in_order(expected)
        self.check_readers(None, in_order(expected))
        timeline = self.table.timeline()
        assert timeline.pending() == ()
        assert self.table.storage.list(HEARTBEAT_FOLDER) == []
        named = {stat.path for i in timeline.commits() for stat in timeline.commit_metadata(i).write_stats}
        there = {str(path.relative_to(self.location)) for path in Path(self.location).rglob("*.parquet")}
        assert there <= named

    def check_readers(self, as_of: str | None, ours: list[dict[str, Any]]) -> None:
        """Check that hudi-rs sees these rows, now or as of a commit."""
        assert self._theirs(as_of=as_of) == ours

    def _check_partitions(self, ours: list[dict[str, Any]]) -> None:
        config = self.table.config
        for field in config.partition_fields:
            if not pa.types.is_string(self.table.schema.field(field).type):
                continue
            for value in {row[field] for row in ours} - {None, ""}:
                found = self._theirs((field, "=", value))
                assert found == [row for row in ours if row[field] == value], f"{field}={value!r}"

    def _check_changes(self, commits: Sequence[Any]) -> None:
        rows = snapshot(self.table, meta_columns=True).to_table()
        times = ["0", *(commit.completion_time for commit in commits)]
        for position, start in enumerate(times):
            inside = [commit.requested_time for commit in commits[position:]]
            changed = rows.filter(pc.is_in(rows["_hoodie_commit_time"], pa.array(inside, pa.string())))
            expected = in_order(changed.select(self.table.schema.names).to_pylist())
            assert self._theirs(after=start) == expected, f"changes after {start}"

    def _theirs(
        self, *filters: tuple[str, str, str], as_of: str | None = None, after: str | None = None
    ) -> list[dict[str, Any]]:
        options = HudiReadOptions(filters=list(filters))
        if as_of is not None:
            options = options.with_as_of_timestamp(as_of)
        if after is not None:
            options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(after)
        batches = HudiTableBuilder.from_base_uri(self.location).build().read(options)
        names = self.table.schema.names
        found = pa.Table.from_batches(batches).select(names).to_pylist() if batches else []
        return in_order(found)


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order that does not depend on files."""
    return sorted((dict(row) for row in rows), key=repr)


def fingerprint(root: str | Path) -> dict[str, str]:
    """Every file under a folder, with a hash of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def untouched(location: str | Path, act: Callable[[], object]) -> None:
    """Check that an action changes no byte of a folder."""
    before = fingerprint(location)
    try:
        act()
    finally:
        assert fingerprint(location) == before
