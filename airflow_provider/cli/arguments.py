"""Arguments of several commands: a table, its lock, the form of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_provider.exceptions import InvalidConnectionError, InvalidInputError

if TYPE_CHECKING:
    from airflow_provider.locks import LockProvider
    from airflow_provider.metastore import AnyMetastore
    from airflow_provider.table import HudiTable
    from airflow_provider.table.hudi_options import EffectiveOptions

given_metastore: ContextVar[str | None] = ContextVar("given_metastore", default=None)
"""The option ``--metastore``."""

given_lock: ContextVar[str | None] = ContextVar("given_lock", default=None)
"""The option ``--lock``."""

_name: ContextVar[tuple[str, str] | None] = ContextVar("_name", default=None)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one document.")]


def opened_table(table: str) -> HudiTable:
    """Open the table that a command names.

    :param table: path, URL, or ``database.table`` in the metastore of the option ``--metastore``.
    :raises InvalidInputError: when the command names no metastore for a ``database.table``.
    :raises NoSuchObjectError: when the metastore does not know the table.
    :raises NotATableError: when there is no table at the location.
    """
    from airflow_provider.metastore.model import is_location, split_table_name
    from airflow_provider.table import HudiTable

    _name.set(None if is_location(table) else split_table_name(table))
    if is_location(table):
        return HudiTable.open(table)
    database, name = split_table_name(table)
    with table_metastore() as metastore:
        if metastore is None:
            raise InvalidInputError(
                f"table {table!r} is a metastore's name; say which metastore by --metastore or "
                "TABLE_SERVICES_METASTORE_DB, or give the table's path or URL",
                table=table,
            )
        return HudiTable.open(metastore.get_table(database, name).location)


def registered_name() -> tuple[str, str] | None:
    """Database and name of the command's table; None if the command gives its path."""
    return _name.get()


@contextmanager
def table_metastore() -> Iterator[AnyMetastore | None]:
    """The metastore in which the command's table is registered; None if the command gives its path."""
    url = given_metastore.get()
    if url is None or _name.get() is None:
        yield None
        return
    from airflow_provider.metastore import open_metastore

    with closing(open_metastore(url, must_exist=True)) as metastore:
        yield metastore


def lock_config(table: HudiTable) -> dict[str, Any]:
    """The lock's configuration from the option ``--lock`` and the table's own options.

    It is empty for the filesystem lock in the table.

    :raises InvalidConnectionError: when ``--lock`` is no JSON object, or contradicts the table's options.
    """
    from airflow_provider.locks import agreed_config

    given = given_lock.get()
    try:
        config = json.loads(given) if given else {}
    except ValueError:
        config = None
    if not isinstance(config, dict):
        # The text may hold a password.
        raise InvalidConnectionError('--lock is not a JSON object such as {"provider": "filesystem"}')
    return agreed_config(
        config, table.hudi_options.lock, config_of="--lock", options_of="the table's options"
    )


def table_lock(table: HudiTable) -> LockProvider:
    """A contender for the table's lock; see :func:`lock_config`."""
    from airflow_provider.locks import open_lock

    return open_lock(lock_config(table), table.storage)


def effective_options(table: HudiTable) -> EffectiveOptions:
    """The table's options, as defaults of a command's own options.

    :raises InvalidInputError: when the table's options contradict each other.
    """
    from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions

    return EffectiveOptions(HudiOptions(), table.hudi_options)


TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Path, URL or database.table.", show_default=False)
]
"""The argument of a command that :func:`opened_table` opens."""
