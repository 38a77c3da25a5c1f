"""This package's errors in Hive's words, and back.

A method of Hive's declares few exceptions, and none of them says more than a text. Where the one that fits
best stands for another error too, the text begins with this package's name for it, as in Hive's own
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
# The first of these that a method declares.
_IN_HIVE: Sequence[tuple[type[TableServiceError], tuple[str, ...]]] = (
    (NoSuchObjectError, ("NoSuchObjectException", "UnknownTableException", "InvalidOperationException")),
    (AlreadyExistsError, ("AlreadyExistsException", "InvalidOperationException")),
    (NoSuchTransactionError, ("NoSuchTxnException",)),
    (TransactionAbortedError, ("TxnAbortedException",)),
    (TransactionOpenError, ("TxnOpenException",)),
    (NoSuchLockError, ("NoSuchLockException",)),
    (InvalidInputError, ("InvalidObjectException", "InvalidOperationException")),
    # The request is not to blame.
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

    :param error: what happened.
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
