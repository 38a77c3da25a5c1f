"""What an ingestion is to do, as data: made by an operator, carried out on a Spark session."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from airflow_provider.concurrency import PRIORITIES, ConflictPolicy
from airflow_provider.exceptions import InvalidInputError, UnknownOperationError
from airflow_provider.ingestion.windows import Window
from airflow_provider.table.timeline import Action

MIB = 1024 * 1024


@dataclass(frozen=True)
class Operation:
    """How an ingestion changes a table (Hudi's ``WriteOperationType``).

    :param hudi_type: the name in commit metadata.
    :param action: the action on the timeline.
    :param looks_up_keys: whether a row replaces (or takes out) an older version of its record;
        if not, a key that is there already is there twice afterwards, as in Hudi.
    :param fills_small_files: whether rows go into small file groups before new ones are opened.
    :param replaces: which live file groups are taken out: those of the ``partitions`` that the
        rows belong to, or of the whole ``table``.
    """

    hudi_type: str
    action: Action = Action.COMMIT
    looks_up_keys: bool = False
    fills_small_files: bool = False
    replaces: str | None = None

    @property
    def promises_unique_keys(self) -> bool:
        """Whether a record that another write adds at the same time must not be there twice."""
        return self.looks_up_keys or self.replaces is not None


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "insert": Operation("INSERT", fills_small_files=True),
        "upsert": Operation("UPSERT", looks_up_keys=True, fills_small_files=True),
        "delete": Operation("DELETE", looks_up_keys=True),
        "bulk_insert": Operation("BULK_INSERT"),
        "insert_overwrite": Operation("INSERT_OVERWRITE", Action.REPLACE_COMMIT, replaces="partitions"),
        "insert_overwrite_table": Operation(
            "INSERT_OVERWRITE_TABLE", Action.REPLACE_COMMIT, replaces="table"
        ),
    }
)
"""The operations by the names that a DAG author uses."""


@dataclass(frozen=True)
class IngestJob:
    """One ingestion into one table. Key, partition and ordering columns are the table's.

    :param location: absolute path or URL of the table.
    :param source: paths, URLs or patterns that Spark reads; empty where rows are handed over
        as a DataFrame.
    :param source_format: a format of Spark's ``DataFrameReader``.
    :param source_options: options of that reader.
    :param operation: a key of :data:`OPERATIONS`.
    :param priority: who yields to whom; see :data:`~airflow_provider.concurrency.PRIORITIES`.
    :param on_conflict: when a write that completed first touched the same file groups: ``raise``
        :class:`~airflow_provider.exceptions.WriteConflictError`, or ``rebase``: merge only these file
        groups again, on the new snapshot.
    :param on_rewrite: when what completed first was a rewrite (clustering, compaction) of lower
        priority: ``rebase`` onto its file groups, or ``revert`` it.
    :param on_higher_priority: when a live writer of higher priority works on the same file groups:
        ``wait`` for its end, or ``fail``.
    :param max_rebases: how often one write is rebased before it raises.
    :param yield_timeout: seconds to wait for writers of higher priority, and for clusterings that other Hudi
        writers have planned.
    :param on_pending_clustering: when another Hudi writer has planned a clustering of a file group that the
        write touches: ``fail``, or ``wait`` for its end.
    :param storage_options: keyword arguments of the table's fsspec file system; executors need
        them too.
    :param lock: configuration for :func:`~airflow_provider.locks.open_lock`.
    :param heartbeat_interval: seconds between two beats.
    :param tolerable_misses: missed beats after which others roll this write back.
    :param operation_key: the same for all tries of one operation, so that a later try finds what
        an earlier one did.
    :param operation_since: an instant time at or before the first of these tries, so that only the
        commit log's end has to be read.
    :param txn_id: metastore transaction that the commit belongs to.
    :param write_id: the table's write id in that transaction.
    :param txn_goes_on: whether the transaction is ended by somebody else, after other writes; see
        :func:`~airflow_provider.concurrency.begin_write`.
    :param table_name: the table's name for people; the one in its properties when None.
    :param target_file_size: bytes; files are filled up to about so much.
    :param small_file_limit: bytes; smaller files take new rows before new files are opened.
    :param set_null_for_missing_columns: whether columns of the table that the rows lack are null; else the
        rows are refused. As the table's options say when None.
    :param validate_schema: whether rows that lack a column are refused in any case, as with Hudi's
        ``hoodie.avro.schema.validate``. As the table's options say when None.
    :param extra_metadata: goes into the commit metadata.
    :param job_id: names the outcome's file.
    :param spark_conf: configuration of a session that the job opens for itself.
    :param window: the part of the source that is written; all of it when None.
    :param serves: whether a process that gets this job does not write, but waits to be asked for
        windows of it; see :mod:`airflow_provider.spark.job_requests`.
    """

    location: str
    source: tuple[str, ...] = ()
    source_format: str = "parquet"
    source_options: Mapping[str, str] = field(default_factory=dict)
    operation: str = "upsert"
    priority: int = PRIORITIES["ingestion"]
    on_conflict: Literal["raise", "rebase"] = "raise"
    on_rewrite: Literal["rebase", "revert"] = "rebase"
    on_higher_priority: Literal["wait", "fail"] = "wait"
    max_rebases: int = 10
    yield_timeout: float = 3600.0
    on_pending_clustering: Literal["fail", "wait"] = "fail"
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    lock: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_interval: float = 10.0
    tolerable_misses: int = 6
    operation_key: str | None = None
    operation_since: str | None = None
    txn_id: int | None = None
    write_id: int | None = None
    txn_goes_on: bool = False
    table_name: str | None = None
    target_file_size: int = 120 * MIB
    small_file_limit: int = 100 * MIB
    set_null_for_missing_columns: bool | None = None
    validate_schema: bool | None = None
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    window: Window | None = None
    serves: bool = False

    def to_json(self) -> str:
        """The job as text; holds the storage options, so mind who may read it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> IngestJob:
        """Read what :meth:`to_json` made.

        :raises InvalidInputError: when it is not a job.
        """
        try:
            described = json.loads(text)
            known = {each.name for each in fields(cls)}
            if unknown := sorted(set(described) - known):
                raise InvalidInputError(f"an ingestion has no field {unknown[0]!r}; it has: {sorted(known)}")
            source = described.get("source", ())
            described["source"] = (source,) if isinstance(source, str) else tuple(source)
            if window := described.get("window"):
                described["window"] = Window(**window)
            return cls(**described)
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"not the description of an ingestion ({error}): {text[:200]!r}"
            ) from error

    @property
    def kind(self) -> Operation:
        """What the operation's name stands for.

        :raises UnknownOperationError: when it stands for nothing.
        """
        if self.operation not in OPERATIONS:
            raise UnknownOperationError(
                f"operation {self.operation!r} is not known; known: {', '.join(OPERATIONS)}",
                operation=self.operation,
            )
        return OPERATIONS[self.operation]

    @property
    def policy(self) -> ConflictPolicy:
        """What the write does where the conflict rules leave it a choice.

        :raises InvalidInputError: when a value is not one of the known ones.
        """
        return ConflictPolicy(
            self.on_conflict,
            self.on_rewrite,
            self.on_higher_priority,
            self.max_rebases,
            self.yield_timeout,
            self.on_pending_clustering,
        )

    def validate(self) -> None:
        """Check what can be checked without the table and without Spark.

        :raises UnknownOperationError: when the operation is not known; names the known ones.
        :raises InvalidInputError: when another field cannot work.
        """
        _ = self.kind
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidInputError(f"priority must be a whole number, not {self.priority!r}")
        if isinstance(self.max_rebases, bool) or not isinstance(self.max_rebases, int):
            raise InvalidInputError(f"max_rebases must be a whole number, not {self.max_rebases!r}")
        if isinstance(self.yield_timeout, bool) or not isinstance(self.yield_timeout, int | float):
            raise InvalidInputError(f"yield_timeout must be a number of seconds, not {self.yield_timeout!r}")
        _ = self.policy
        if self.target_file_size <= 0:
            raise InvalidInputError(f"target_file_size must be above 0 bytes, not {self.target_file_size}")
        if not 0 <= self.small_file_limit <= self.target_file_size:
            raise InvalidInputError(
                f"small_file_limit must be between 0 and target_file_size ({self.target_file_size} bytes), "
                f"not {self.small_file_limit}: else files that are full would be filled further"
            )
        if self.heartbeat_interval <= 0 or self.tolerable_misses < 1:
            raise InvalidInputError(
                "heartbeat_interval must be above 0 seconds and tolerable_misses at least 1, not "
                f"{self.heartbeat_interval!r} and {self.tolerable_misses!r}"
            )
