"""An ingestion as data, in parts; each part is checked where it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

from airflow_provider.concurrency import WriteSettings, WriteTransaction
from airflow_provider.exceptions import InvalidInputError, UnknownOperationError
from airflow_provider.ingestion.windows import Window
from airflow_provider.jobs import TableJob
from airflow_provider.table.files import BLOCKS_OF_FORMATS
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

MIB = 1024 * 1024
_SMALL_FILE_LIMIT = 100 * MIB
_ALWAYS_FILLED = 4 * MIB
_MOST_REWRITTEN = 20  # times the bytes of the new rows; a larger file is not rewritten for them


@dataclass(frozen=True)
class WriteOperation:
    """How an ingestion changes a table (Hudi's ``WriteOperationType``).

    :param hudi_type: the name in commit metadata.
    :param action: the action on the timeline.
    :param looks_up_keys: whether a row replaces or deletes an older version of its record. If not, a key that
        the table already has exists twice afterwards, as in Hudi.
    :param fills_small_files: whether rows go into small file groups before new ones are opened.
    :param replaces: which live file groups the write replaces: those of the ``partitions`` that the
        rows belong to, or of the whole ``table``.
    """

    hudi_type: str
    action: Action = Action.COMMIT
    looks_up_keys: bool = False
    fills_small_files: bool = False
    replaces: str | None = None

    @property
    def promises_unique_keys(self) -> bool:
        """Whether it is a conflict when another write adds the same record at the same time."""
        return self.looks_up_keys or self.replaces is not None

    @property
    def gathers_keys(self) -> bool:
        """Whether rows are assigned to file groups, by their keys or by the room in file groups."""
        return self.promises_unique_keys or self.fills_small_files


OPERATIONS: Mapping[str, WriteOperation] = MappingProxyType(
    {
        "insert": WriteOperation("INSERT", fills_small_files=True),
        "upsert": WriteOperation("UPSERT", looks_up_keys=True, fills_small_files=True),
        "delete": WriteOperation("DELETE", looks_up_keys=True),
        "bulk_insert": WriteOperation("BULK_INSERT"),
        "insert_overwrite": WriteOperation("INSERT_OVERWRITE", Action.REPLACE_COMMIT, replaces="partitions"),
        "insert_overwrite_table": WriteOperation(
            "INSERT_OVERWRITE_TABLE", Action.REPLACE_COMMIT, replaces="table"
        ),
    }
)
"""The operations by their names for DAG authors."""


@dataclass(frozen=True)
class Source:
    """The files with the rows.

    :param paths: paths, URLs or patterns that Spark reads; empty for rows in memory.
    :param source_format: a format of Spark's ``DataFrameReader``.
    :param source_options: options of that reader.
    :param window: the part of the rows that is written; all of them when None.
    :raises InvalidInputError: when a path or the format is not text.
    """

    paths: tuple[str, ...] = ()
    source_format: str = "parquet"
    source_options: Mapping[str, str] = field(default_factory=dict)
    window: Window | None = None

    def __post_init__(self) -> None:
        for path in self.paths:
            if not isinstance(path, str) or not path.strip():
                raise InvalidInputError(f"source must be paths, URLs or patterns, not {path!r}")
        if not isinstance(self.source_format, str) or not self.source_format.strip():
            raise InvalidInputError(f"source_format must name a format, not {self.source_format!r}")

    def __str__(self) -> str:
        return ", ".join(self.paths) or "DataFrame"


@dataclass(frozen=True)
class FileSizes:
    """The sizes of base files.

    :param target_file_size: bytes; files are filled up to about this size.
    :param small_file_limit: bytes; smaller files take new rows before new files are opened. The default is
        100 MiB, or the target size if that is smaller. With the default, a file of more than 4 MiB takes new
        rows only if it is at most twenty times as large as these rows, so that a few rows do not rewrite
        large files.
    :raises InvalidInputError: when a size is invalid.
    """

    target_file_size: int = 120 * MIB
    small_file_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_file_size", "small_file_limit"):
            size = getattr(self, name)
            if size is None and name == "small_file_limit":
                continue
            if isinstance(size, bool) or not isinstance(size, int):
                raise InvalidInputError(f"{name} must be a whole number of bytes, not {size!r}")
        if self.target_file_size <= 0:
            raise InvalidInputError(f"target_file_size must be above 0 bytes, not {self.target_file_size}")
        if not 0 <= self.fills_below <= self.target_file_size:
            raise InvalidInputError(
                f"small_file_limit must be between 0 and target_file_size ({self.target_file_size} bytes), "
                f"not {self.small_file_limit}: else files that are full would be filled further"
            )

    @property
    def fills_below(self) -> int:
        """``small_file_limit``, or its default."""
        if self.small_file_limit is None:
            return min(_SMALL_FILE_LIMIT, self.target_file_size)
        return self.small_file_limit

    def is_worth_filling(self, size: int, new_bytes: float) -> bool:
        """Whether a small file is rewritten to take new rows, which could also go into a new file.

        :param size: bytes of the file.
        :param new_bytes: bytes of the new rows.
        """
        return self.small_file_limit is not None or size <= max(_ALWAYS_FILLED, _MOST_REWRITTEN * new_bytes)


@dataclass(frozen=True)
class MissingColumns:
    """The treatment of rows that lack columns of the table.

    :param set_null_for_missing_columns: True makes these columns null, False refuses the rows; None leaves it
        to the table's options.
    :param validate_schema: whether rows that lack a column are refused in any case, as with Hudi's
        ``hoodie.avro.schema.validate``; None leaves it to the table's options.
    """

    set_null_for_missing_columns: bool | None = None
    validate_schema: bool | None = None


@dataclass(frozen=True)
class IngestJob(TableJob):
    """One ingestion into one table. The table has the key, partition and ordering columns.

    :meth:`~airflow_provider.jobs.TableJob.of` makes one from single settings by their names.

    :param source: the files with the rows.
    :param operation: a key of :data:`OPERATIONS`.
    :param settings: priority, conflict policy and heartbeat.
    :param sizes: sizes of base files.
    :param missing: treatment of rows that lack columns.
    :param transaction: the metastore transaction that the commit belongs to.
    :param extra_metadata: added to the commit metadata.
    :param log_block_format: ``parquet`` or ``avro``, the format of new versions of records in log files; None
        leaves it to the table's options.
    :param serves: whether a process with this job waits for requests to write single windows, instead of
        writing at once; see :mod:`airflow_provider.spark.job_request`.
    :raises UnknownOperationError: when the operation is unknown; the message names the known ones.
    :raises InvalidInputError: when extra metadata is not text, or the format of log blocks is unknown.
    """

    kind_of_job: ClassVar[str] = "ingestion"

    source: Source = field(default_factory=Source)
    operation: str = "upsert"
    settings: WriteSettings = field(default_factory=WriteSettings)
    sizes: FileSizes = field(default_factory=FileSizes)
    missing: MissingColumns = field(default_factory=MissingColumns)
    transaction: WriteTransaction = field(default_factory=WriteTransaction)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    log_block_format: str | None = None
    serves: bool = False

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise UnknownOperationError(
                f"operation {self.operation!r} is not known; known: {', '.join(OPERATIONS)}",
                operation=self.operation,
            )
        if self.log_block_format not in (None, *BLOCKS_OF_FORMATS):
            raise InvalidInputError(
                f"log_block_format must be {' or '.join(BLOCKS_OF_FORMATS)}, not {self.log_block_format!r}",
                argument="log_block_format",
            )
        for name, value in self.extra_metadata.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise InvalidInputError(
                    f"extra_metadata must map texts to texts, not {name!r} to {value!r}: Hudi keeps no other"
                )

    @classmethod
    def of(cls, location: str, source: Source | str | Sequence[str] = (), **settings: Any) -> Self:
        """See :meth:`~airflow_provider.jobs.TableJob.of`.

        :param source: the files, or their paths, URLs or patterns.
        """
        if isinstance(source, Source):
            return super().of(location, source=source, **settings)
        if not isinstance(source, Sequence):
            raise InvalidInputError(f"source must be a path, URL or pattern, or several, not {source!r}")
        paths = (source,) if isinstance(source, str) else tuple(source)
        return super().of(location, paths=paths, **settings)

    @property
    def kind(self) -> WriteOperation:
        """How the operation changes a table."""
        return OPERATIONS[self.operation]

    def kind_on(self, table: HudiTable) -> WriteOperation:
        """How the operation changes one table. With a bucket index no operation adds a key twice.

        :param table: the table.
        """
        return self.kind if table.bucket_index is None else replace(self.kind, looks_up_keys=True)
