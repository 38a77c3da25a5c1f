"""The translation of this package's errors into Hive's exceptions, and back.

A method of Hive's declares few exceptions, and an exception carries only a text. When the exception that fits
best also stands for another error, the text begins with this package's name of the error, as in Hive's
``MetaException(message:NoSuchObjectException(..))``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_provider import exceptions
from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTransactionError,
    TableServiceError,
    TransactionAbortedError,
    TransactionOpenError,
)

_UNDECLARED = "MetaException"
# By error, the exceptions that stand for it, the best one first. A client gets the first declared one.
_IN_HIVE: Sequence[tuple[type[TableServiceError], tuple[str, ...]]] = (
    (
        NoSuchObjectError,
        (
            "NoSuchObjectException",
            "UnknownTableException",
            "InvalidObjectException",
            "InvalidOperationException",
        ),
    ),
    (AlreadyExistsError, ("AlreadyExistsException", "InvalidOperationException")),
    (NoSuchTransactionError, ("NoSuchTxnException",)),
    (TransactionAbortedError, ("TxnAbortedException",)),
    (TransactionOpenError, ("TxnOpenException",)),
    (NoSuchLockError, ("NoSuchLockException",)),
    (InvalidInputError, ("InvalidObjectException", "InvalidOperationException")),
    # The request did not cause this error.
    (MetastoreUnavailableError, (_UNDECLARED,)),
    (MetastoreError, ("InvalidOperationException",)),
)
_FROM_HIVE: Mapping[str, type[TableServiceError]] = {
    "AlreadyExistsException": AlreadyExistsError,
    "InvalidObjectException": InvalidInputError,
    "NoSuchLockException": NoSuchLockError,
    "NoSuchObjectException": NoSuchObjectError,
    "NoSuchTxnException": NoSuchTransactionError,
    "TxnAbortedException": TransactionAbortedError,
    "TxnOpenException": TransactionOpenError,
    "UnknownDBException": NoSuchObjectError,
    "UnknownTableException": NoSuchObjectError,
}


def in_hive(error: TableServiceError, declared: Collection[str]) -> tuple[str | None, str]:
    """The exception that a client gets.

    :param error: the error of the request.
    :param declared: the exceptions that the method declares.
    :return: one of them, None when none fits, and its text.
    """
    fitting = next((names for type_, names in _IN_HIVE if isinstance(error, type_)), ())
    chosen = next((name for name in (*fitting, _UNDECLARED) if name in declared), None)
    is_exact = _FROM_HIVE.get(str(chosen), MetastoreError) is type(error)
    return chosen, str(error) if is_exact and chosen else f"{type(error).__name__}: {error}"


def from_hive(exception: str, text: str) -> TableServiceError:
    """The error that a server's exception stands for.

    :param exception: the exception's name.
    :param text: its text.
    """
    name, _, rest = text.partition(": ")
    named = vars(exceptions).get(name)
    if isinstance(named, type) and issubclass(named, TableServiceError):
        return named(rest)
    return _FROM_HIVE.get(exception, MetastoreError)(text)
