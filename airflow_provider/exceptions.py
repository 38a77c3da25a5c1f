"""Every error that this package raises on purpose.

::

    TableServiceError
    ├── InvalidInputError                the caller's argument is invalid; nothing was written
    │   ├── MissingColumnError
    │   ├── InvalidRecordKeyError
    │   ├── InvalidPartitionValueError
    │   ├── IncompatibleSchemaError
    │   ├── EmptySourceError
    │   ├── UnreadableSourceError
    │   │   └── MissingSourceError
    │   │       └── SourceNotThereYetError  (retryable)
    │   ├── SparkNeededError
    │   ├── UnknownOperationError
    │   ├── SparkVersionError
    │   └── InvalidConnectionError
    ├── TableError                       the table on disk
    │   ├── NotATableError
    │   ├── TableExistsError
    │   ├── UnsupportedTableError
    │   ├── CorruptTableError
    │   ├── DuplicateRecordKeyError
    │   ├── NoSuchInstantError
    │   │   └── CommitUndoneError        (retryable)
    │   ├── SnapshotUnavailableError
    │   │   └── SnapshotNotSettledError  (retryable)
    │   └── CheckpointExpiredError
    ├── CommitError                      a write that did not become visible
    │   ├── WriteConflictError           (retryable)
    │   │   ├── HigherPriorityWriteError
    │   │   └── UnfinishedWriteError
    │   ├── InstantRolledBackError       (retryable)
    │   ├── HeartbeatExpiredError        (retryable)
    │   └── StorageFullError             (retryable)
    ├── LockError
    │   ├── LockTimeoutError             (retryable)
    │   ├── LockLostError                (retryable)
    │   └── LockUnavailableError         (retryable)
    ├── MetastoreError
    │   ├── NoSuchObjectError
    │   ├── AlreadyExistsError
    │   ├── NoSuchTransactionError
    │   ├── TransactionAbortedError      (retryable)
    │   ├── TransactionOpenError
    │   ├── NoSuchLockError
    │   ├── EventsExpiredError
    │   ├── UnsupportedByServerError
    │   ├── ConsumerGoneError
    │   ├── ReplicationTargetError
    │   ├── ReplicationLeaseError        (retryable)
    │   └── MetastoreUnavailableError    (retryable)
    ├── ReplicationError                 a replication cannot copy a table or a file to the target
    ├── IndexCatchUpTimeoutError         other writers did not end while an index waited (retryable)
    ├── JobFailedError                   a job ended without a result (retryable)
    ├── SparkUnavailableError            a Spark Connect server cannot be reached (retryable)
    └── ServiceStoppedError              a table service failed several times in a row

``retryable`` says whether the same call can succeed later with nothing else changed. :func:`to_dict` and
:func:`from_dict` carry an error to another process.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TableServiceError(Exception):
    """Root of all errors of this package.

    :param message: what is wrong, where, and what to do.
    :param details: JSON-able facts about the error, for machines (for example the
        conflicting instant); kept in :attr:`details`.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class InvalidInputError(TableServiceError):
    """Raised before anything is written, when an argument is invalid."""


class MissingColumnError(InvalidInputError):
    """Raised when a record key, partition or ordering column is not in the data."""


class InvalidRecordKeyError(InvalidInputError):
    """Raised when a record key is null, empty or of a type that cannot be a key."""


class InvalidPartitionValueError(InvalidInputError):
    """Raised when a value cannot become a partition path."""


class IncompatibleSchemaError(InvalidInputError):
    """Raised when the data's schema cannot be written into the table's schema."""


class EmptySourceError(InvalidInputError):
    """Raised when the source holds no row."""


class UnreadableSourceError(InvalidInputError):
    """Raised when the source is missing or cannot be parsed."""


class MissingSourceError(UnreadableSourceError):
    """Raised when one of the source's paths has no file."""


class SourceNotThereYetError(MissingSourceError):
    """Raised in place of :class:`MissingSourceError` if the caller wants to try again later."""

    retryable = True


class SparkNeededError(InvalidInputError):
    """Raised when pyarrow does not read a source as Spark does."""


class UnknownOperationError(InvalidInputError):
    """Raised when an operation, index or option is not known; the message names the known ones."""


class WriteIdsRequiredError(InvalidInputError):
    """Raised when a reader sends no write id list for a managed table, and the metastore requires one."""


class SparkVersionError(InvalidInputError):
    """Raised when the installed PySpark is incomplete, or does not fit the Spark that it connects to."""


class InvalidConnectionError(InvalidInputError):
    """Raised when a field or an extra of an Airflow connection is invalid."""


class TableError(TableServiceError):
    """Base of errors about a table on storage."""


class NotATableError(TableError):
    """Raised when a path holds no Hudi table."""


class TableExistsError(TableError):
    """Raised when a new table's location already holds a table."""


class UnsupportedTableError(TableError):
    """Raised when a table's version, layout or type does not support the caller's operation."""


class CorruptTableError(TableError):
    """Raised when the content of a table's file is invalid."""


class DuplicateRecordKeyError(TableError):
    """Raised when a record key is in two file groups, but may be in only one."""


class NoSuchInstantError(TableError):
    """Raised when an instant named by the caller is not on the timeline."""


class CommitUndoneError(NoSuchInstantError):
    """Raised when a commit of a snapshot is undone before the snapshot's files are listed."""

    retryable = True


class NoWriteIdError(TableError):
    """Raised when a reader asks for row ids of rows that were not written in a metastore transaction."""


class SnapshotUnavailableError(TableError):
    """Raised when the files do not separate the rows of a snapshot from others, or no longer do."""


class SnapshotNotSettledError(SnapshotUnavailableError):
    """Raised when a commit that belongs to a snapshot of the past may still complete."""

    retryable = True


class CheckpointExpiredError(TableError):
    """Raised when commits or files after a checkpoint are archived, cleaned or undone."""


class CommitError(TableServiceError):
    """Base of errors that end a write without a commit. The write left nothing visible."""

    retryable = True


class WriteConflictError(CommitError):
    """Raised when a commit that completed first touched the same file groups."""


class HigherPriorityWriteError(WriteConflictError):
    """Raised when a write yields to a live writer of higher priority on the same file groups."""


class UnfinishedWriteError(WriteConflictError):
    """Raised when a write of another Hudi writer is pending without a heartbeat, and shares no lock."""


class InstantRolledBackError(CommitError):
    """Raised when a writer finds that another process rolled its instant back."""


class HeartbeatExpiredError(CommitError):
    """Raised when a writer finds its own heartbeat expired."""


class StorageFullError(CommitError):
    """Raised when the storage has no room for a file; the ``OSError`` is its cause."""


class LockError(TableServiceError):
    """Base of errors about a lock."""

    retryable = True


class LockTimeoutError(LockError):
    """Raised when a lock was not acquired in time; the message names the holder."""


class LockLostError(LockError):
    """Raised when the holder finds that the lock is no longer its own."""


class LockUnavailableError(LockError):
    """Raised when the lock's backend cannot be reached."""


class MetastoreError(TableServiceError):
    """Base of errors of the metastore."""

    retryable = True


class NoSuchObjectError(MetastoreError):
    """Raised when a database, table, partition or consumer does not exist."""

    retryable = False


class AlreadyExistsError(MetastoreError):
    """Raised when a database, table, partition or consumer exists already."""

    retryable = False


class NoSuchTransactionError(MetastoreError):
    """Raised when a transaction id was never opened, or is closed already."""

    retryable = False


class TransactionAbortedError(MetastoreError):
    """Raised when a transaction was aborted, by its owner or by its timeout."""


class EnclosingTransactionError(MetastoreError):
    """Raised when a transaction around several writes was aborted, or has ended, before a write in it."""

    retryable = False

    @classmethod
    def caused_by(cls, error: MetastoreError) -> EnclosingTransactionError:
        """Make this error from the metastore's error, with the remedy added.

        :param error: the metastore's error about the transaction.
        """
        remedy = "begin another transaction and run all its writes again"
        in_a_dag = "in a DAG, clear the task that began it, and all that follow"
        return cls(f"{error}; {remedy} ({in_a_dag})", **error.details)


class TransactionOpenError(MetastoreError):
    """Raised when a caller unlocks an acquired lock while its transaction is open."""

    retryable = False


class NoSuchLockError(MetastoreError):
    """Raised when a lock id was never given out, was unlocked, timed out, or ended with its transaction."""

    retryable = False


class EventsExpiredError(MetastoreError):
    """Raised when notification events after a consumer's position are gone."""

    retryable = False


class UnsupportedByServerError(MetastoreError):
    """Raised when a metastore server has no request for an operation; the metastore's database would do."""

    retryable = False


class ConsumerGoneError(MetastoreError):
    """Raised when a caller waits for a consumer of the notification log that gives no sign of life."""


class ReplicationTargetError(MetastoreError):
    """Raised when a client other than the replicator changes a database that is a replication's target."""


class ReplicationLeaseError(MetastoreError):
    """Raised when another replicator runs for the policy."""

    retryable = True


class MetastoreUnavailableError(MetastoreError):
    """Raised when the metastore's database or server cannot be reached."""


class MetastoreAccessError(MetastoreError):
    """Raised when a metastore refuses a user."""

    retryable = False


class ServiceStoppedError(TableServiceError):
    """Raised when a table service has stopped itself on a table, after too many failures in a row."""


class ReplicationError(TableServiceError):
    """Raised when a replicator cannot make the target equal to the source."""


class IndexCatchUpTimeoutError(TableServiceError):
    """Raised when writers that do not log to a new index have not ended before the build's time limit."""

    retryable = True


class SparkUnavailableError(TableServiceError):
    """Raised when a Spark Connect server is not reached in time, before or during a job."""

    retryable = True


class JobFailedError(TableServiceError):
    """Raised when a Spark job ended without a result; the message has the end of its log."""

    retryable = True


def to_dict(error: BaseException) -> dict[str, Any]:
    """Describe an error so that another process can raise it again.

    :param error: any exception.
    :return: JSON-able dict with ``type``, ``message``, ``details`` and ``retryable``.
    """
    known = isinstance(error, TableServiceError)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "details": error.details if isinstance(error, TableServiceError) else {},
        "retryable": error.retryable if known else False,  # type: ignore[attr-defined]
    }


def from_dict(described: dict[str, Any]) -> TableServiceError:
    """Rebuild an error from :func:`to_dict`.

    :param described: the dict.
    :return: an exception of the same type if it is one of ours; otherwise a :class:`JobFailedError` with the
        foreign type's name in its message.
    """
    found = globals().get(described["type"])
    if isinstance(found, type) and issubclass(found, TableServiceError):
        return found(described["message"], **described.get("details", {}))
    return JobFailedError(f"{described['type']}: {described['message']}", **described.get("details", {}))
