"""A file group whose log file is written block by block."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups import FileSlice
from airflow_provider.table.files import (
    BaseFileWriter,
    BlockType,
    DeletedRecord,
    HeaderKey,
    WrappedValue,
    encode_deletes,
    encode_log_block,
)
from airflow_provider.table.files.log_file import encode_rollback_block
from airflow_provider.table.files.log_records import encode_avro_records, parsed_schema
from airflow_provider.table.merge_semantics import MergeSemantics
from airflow_provider.table.reading import SliceReader
from airflow_provider.table.schema import TableSchema, arrow_to_avro, with_meta_columns

COLUMNS = pa.schema({"id": pa.string(), "v": pa.int64(), "ts": pa.int64()})
NO_ORDER = WrappedValue("IntWrapper", 0)
LOG_FILE = ".f-0_001.log.1_0-0-0"


class Logged:
    """A file group that has only log files, unless :meth:`base` gives it a base file.

    :param folder: the folder for the table.
    :param ordering: its ordering field; None if the last version wins.
    """

    def __init__(self, folder: Path, ordering: str | None = "ts") -> None:
        self.table = HudiTable.create(
            str(folder), name="t", schema=COLUMNS, record_key=["id"], ordering_field=ordering
        )
        self._blocks: list[bytes] = []
        self._base: str | None = None
        self.completed: set[str] = set()

    def base(self, *rows: tuple[str, int | None, int | None]) -> Logged:
        """Write the base file, with two rows in a row group."""
        with BaseFileWriter(
            self.table.storage,
            partition_path="",
            file_id="f-0",
            write_token="0-0-0",
            instant="000",
            schema=COLUMNS,
            row_group_rows=2,
        ) as writer:
            found = pa.Table.from_pylist([{"id": key, "v": v, "ts": ts} for key, v, ts in rows], COLUMNS)
            writer.write(found, found["id"].combine_chunks())
            self._base = writer.close().path
        return self

    def rows(
        self, instant: str, *rows: tuple[str, int | None, int | None], only: str | None = None
    ) -> Logged:
        """Append a data block; of a partial update, with one column of its own besides the key."""
        columns = COLUMNS if only is None else pa.schema([COLUMNS.field("id"), COLUMNS.field(only)])
        schema = arrow_to_avro(with_meta_columns(columns), "t")
        records = [
            {"_hoodie_record_key": key, "_hoodie_commit_time": instant, "id": key, "v": v, "ts": ts}
            for key, v, ts in rows
        ]
        header = {HeaderKey.SCHEMA: schema} | ({} if only is None else {HeaderKey.IS_PARTIAL: "true"})
        content = encode_avro_records(parsed_schema(schema), records)
        return self._append(
            instant, encode_log_block(BlockType.AVRO_DATA, content, instant=instant, header=header)
        )

    def deletes(self, instant: str, key: str, ordering: WrappedValue = NO_ORDER) -> Logged:
        """Append a delete block."""
        content = encode_deletes([DeletedRecord(key, "", ordering)])
        return self._append(instant, encode_log_block(BlockType.DELETE, content, instant=instant))

    def rolls_back(self, instant: str, dead: str) -> Logged:
        """Append a rollback command."""
        return self._append(instant, encode_rollback_block(instant, dead))

    def cut_off(self) -> Logged:
        """Leave only half of the newest block, like a writer that dies."""
        self._blocks[-1] = self._blocks[-1][: len(self._blocks[-1]) // 2]
        return self

    def read(self) -> dict[str, tuple[int | None, int | None]]:
        """The rows, by key."""
        reader, file_slice = self.opened()
        found = pa.concat_tables(reader.rows(file_slice, COLUMNS.names))
        return {row["id"]: (row["v"], row["ts"]) for row in found.to_pylist()}

    def opened(self, memory: int | None = None) -> tuple[SliceReader, FileSlice]:
        """A reader of the file slice that has the blocks written so far.

        :param memory: bytes that its merges may take.
        """
        self.table.storage.put(LOG_FILE, b"".join(self._blocks))
        reader = SliceReader(
            self.table.storage,
            self.table.config,
            TableSchema(arrow_to_avro(COLUMNS, "t")),
            MergeSemantics.of(self.table.config),
            self.completed,
            memory=memory,
        )
        return reader, FileSlice("", "f-0", "000", self._base, (LOG_FILE,))

    def _append(self, instant: str, block: bytes) -> Logged:
        self._blocks.append(block)
        self.completed.add(instant)
        return self
