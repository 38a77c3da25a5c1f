"""Lock providers behind one protocol, chosen by configuration.

Begin with ``protocol``, which states the promises of a provider. ``contender`` is the common part of all
providers, and ``lease`` the common part of those whose holder renews a lease. A new provider needs a module,
a line in ``LOCK_PROVIDERS``, and the tests in ``tests/processes/locks``. Other rooms call only ``open_lock``
and ``default_lock``; no other room names a provider's class.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.locks.contender import Contender, invalid_option
from airflow_provider.locks.in_process import InProcessLockProvider
from airflow_provider.locks.protocol import LockHolder, LockProvider
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from airflow_provider.table.hudi_table import HudiTable

__all__ = [
    "LOCK_PROVIDERS",
    "InProcessLockProvider",
    "LockHolder",
    "LockProvider",
    "agreed_config",
    "default_lock",
    "lock_options",
    "open_lock",
]

LOCK_PROVIDERS: Mapping[str, str] = {
    "filesystem": "airflow_provider.locks.filesystem:FilesystemLockProvider",
    "hudi_filesystem": "airflow_provider.locks.hudi.filesystem:HudiFilesystemLockProvider",
    "zookeeper": "airflow_provider.locks.zookeeper.provider:ZookeeperLockProvider",
    "database": "airflow_provider.locks.database:DatabaseLockProvider",
    "storage": "airflow_provider.locks.hudi.storage:StorageLockProvider",
    "metastore": "airflow_provider.locks.metastore:MetastoreLockProvider",
    "in_process": "airflow_provider.locks.in_process:InProcessLockProvider",
}
"""Each provider's class by its name in the ``table_lock`` connection. A class is imported when it is used."""


@cache
def _class_of(provider: str) -> type[Contender]:
    if provider not in LOCK_PROVIDERS:
        raise InvalidConnectionError(
            f"lock provider {provider!r} is not known; known: {', '.join(sorted(LOCK_PROVIDERS))}",
            provider=provider,
        )
    found: type[Contender] = pkgutil.resolve_name(LOCK_PROVIDERS[provider])
    return found


@cache
def lock_options(provider: str) -> tuple[str, ...]:
    """The names of the options that a provider takes.

    :raises InvalidConnectionError: when the provider is unknown; the error names the known ones.
    """
    options: list[str] = []
    for each in inspect.getmro(_class_of(provider)):
        parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
        options += [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            break  # this class passes no options to the class that it extends
    return tuple(options)


def agreed_config(
    config: Mapping[str, Any], options: Mapping[str, Any], *, config_of: str, options_of: str
) -> dict[str, Any]:
    """Join two configurations of a lock, which must not contradict each other: a table has one lock.

    :param config: a configuration for :func:`open_lock`.
    :param options: a configuration of the same lock, from another source.
    :param config_of: the source of the first, for the error.
    :param options_of: the source of the second, for the error.
    :raises InvalidConnectionError: when an option has two values; the error shows no value but the provider's
        name.
    """
    for name, value in options.items():
        if name in config and config[name] != value:
            providers = f" ({config[name]!r} and {value!r})" if name == "provider" else ""
            raise InvalidConnectionError(
                f"{config_of} and {options_of} say different things of the lock's {name}{providers}; writers "
                "with different locks do not wait for each other: leave one out",
                option=name,
            )
    return {**config, **options}


def open_lock(config: Mapping[str, Any], storage: Storage) -> LockProvider:
    """Open a contender for a table's lock.

    :param config: ``provider`` (``filesystem`` when absent) and that provider's options.
    :param storage: the table's storage.
    :raises InvalidConnectionError: when the provider or an option is not known, or when a value of
        seconds is not a number above zero.
    """
    options = dict(config)
    provider = options.pop("provider", "filesystem")
    known = lock_options(provider)
    for name, value in options.items():
        if name not in known:
            raise InvalidConnectionError(
                f"lock provider {provider!r} has no option {name!r}; it has: {', '.join(known)}", option=name
            )
        if name.endswith("_seconds") and not (isinstance(value, int | float) and value > 0):
            raise invalid_option(provider, name, f"must be a number of seconds above zero, not {value!r}")
    provider_class: Callable[..., LockProvider] = _class_of(provider)
    return provider_class(storage.root if provider == "in_process" else storage, **options)


def default_lock(table: HudiTable) -> LockProvider:
    """Open a contender for the lock that a table's own options name.

    :param table: the table; without such options the lock is the filesystem lock in the table.
    :raises InvalidConnectionError: when an option that the provider needs is missing.
    :raises InvalidInputError: when an option has an invalid value.
    """
    return open_lock(table.hudi_options.lock, table.storage)
