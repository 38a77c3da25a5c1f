"""The hook of connection type ``table_lock``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret

from airflow_provider.exceptions import InvalidConnectionError, TableServiceError
from airflow_provider.hooks.connection_form import read_extras
from airflow_provider.hooks.metastore import has_password
from airflow_provider.locks import LockProvider, agreed_config, lock_options, open_lock
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from airflow.sdk import Connection

_TEST_TIMEOUT_SECONDS = 10.0
_SECRETS = {"password", "tls_key_password"}


class LockProviderHook(BaseHook):
    """Locks on tables, from a connection of type ``table_lock``.

    Without a connection ``table_lock_default`` the lock is the file lock in the table itself.

    ::

        with LockProviderHook().get_lock("/lake/flights") as lock:
            print(lock.fencing_token)

    :param lock_conn_id: id of the connection.
    """

    conn_name_attr = "lock_conn_id"
    default_conn_name = "table_lock_default"
    conn_type = "table_lock"
    hook_name = "Table Lock"

    def __init__(self, lock_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.lock_conn_id = lock_conn_id
        self._read: dict[str, Any] | None = None

    async def aread(self) -> None:
        """Read the connection in a triggerer's event loop; a thread calls :meth:`lock_config` then.

        :raises InvalidConnectionError: see :meth:`lock_config`.
        """
        try:
            self._read = self._fields(await self.aget_connection(self.lock_conn_id))
        except AirflowNotFoundException:
            self._read = self._without_connection()
        for name in _SECRETS & self._read.keys():
            await amask_secret(self._read[name])

    def lock_config(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The connection as a configuration for :func:`airflow_provider.locks.open_lock`.

        :param options: Hudi's options for the lock
            (:attr:`~airflow_provider.table.hudi_options.HudiOptions.lock`).
        :raises InvalidConnectionError: when the connection does not exist (the default connection may be
            missing), is of another type, has an invalid extra, or contradicts the options.
        """
        given = agreed_config(
            self._given() if self._read is None else self._read,
            options or {},
            config_of=f"connection {self.lock_conn_id!r}",
            options_of="Hudi's options",
        )
        provider = given.pop("provider", "filesystem")
        # The form has the options of all providers; this provider ignores those of others.
        options = {name: given[name] for name in lock_options(provider) if name in given}
        if self._read is None:  # otherwise they are masked already
            for name in _SECRETS & options.keys():
                mask_secret(options[name])
        return {"provider": provider, **options}

    def get_lock(self, location: str, storage_options: Mapping[str, Any] | None = None) -> LockProvider:
        """A contender for the lock of the table at a location; a context manager.

        :param location: absolute path or URL of the table.
        :param storage_options: keyword arguments of the location's fsspec file system.
        :raises InvalidConnectionError: see :meth:`lock_config`.
        """
        return open_lock(self.lock_config(), Storage(location, storage_options))

    def get_conn(self) -> dict[str, Any]:
        """Same as :meth:`lock_config`."""
        return self.lock_config()

    def test_connection(self) -> tuple[bool, str]:
        """Take the lock of the connection's test folder, and release it.

        :return: whether it succeeded, and a sentence for people.
        """
        try:
            folder = self._given().get("test_location")
            if folder is not None:
                return self._acquire_and_release(folder)
            with tempfile.TemporaryDirectory(prefix="table-lock-") as temporary:
                return self._acquire_and_release(temporary)
        except (TableServiceError, OSError) as error:
            return False, f"{type(error).__name__}: {error}"

    def _acquire_and_release(self, folder: str) -> tuple[bool, str]:
        config = self.lock_config()
        lock = open_lock(config, Storage(folder))
        # A person waits for the answer, so a lock that takes longer than this counts as a failure.
        lock.acquire(timeout=min(config.get("timeout_seconds", _TEST_TIMEOUT_SECONDS), _TEST_TIMEOUT_SECONDS))
        token = lock.fencing_token
        lock.release()
        return True, f"{config['provider']} lock taken and released in {folder} (fencing token {token})"

    def _given(self) -> dict[str, Any]:
        """The connection's fields and extras, by the names that the providers give their options."""
        try:
            return self._fields(self.get_connection(self.lock_conn_id))
        except AirflowNotFoundException:
            return self._without_connection()

    def _without_connection(self) -> dict[str, Any]:
        if self.lock_conn_id == self.default_conn_name:
            return {}
        raise InvalidConnectionError(
            f"connection {self.lock_conn_id!r} does not exist; create it with type 'table_lock', "
            "or leave the argument out for the file lock in the table",
            connection=self.lock_conn_id,
        ) from None

    def _fields(self, connection: Connection) -> dict[str, Any]:
        extras = read_extras(connection, self.conn_type)
        _refuse_shown_password(connection, extras)
        hosts = f"{connection.host}:{connection.port}" if connection.port else connection.host
        standard = {"hosts": hosts, "username": connection.login, "password": connection.password}
        return {name: value for name, value in standard.items() if value} | extras


def _refuse_shown_password(connection: Connection, extras: Mapping[str, Any]) -> None:
    if has_password(extras.get("url", "")):
        raise InvalidConnectionError(
            f"connection {connection.conn_id!r}: the extra 'url' has a password in it, which Airflow would "
            "show; put it into the connection's field 'Password'",
            connection=connection.conn_id,
            extra="url",
        )
