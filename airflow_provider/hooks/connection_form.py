"""Connections, read by the form that :mod:`airflow_provider.get_provider_info` defines for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from airflow_provider.exceptions import InvalidConnectionError
from airflow_provider.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from airflow.sdk import Connection


def form_fields(connection_type: str) -> dict[str, dict[str, Any]]:
    """Names and JSON schemas of a connection type's own fields, as the form shows them.

    :param connection_type: ``table_lock`` or ``table_metastore``.
    """
    [described] = [
        entry
        for entry in get_provider_info()["connection-types"]
        if entry["connection-type"] == connection_type
    ]
    return {name: field["schema"] for name, field in described["conn-fields"].items()}


def read_extras(connection: Connection, connection_type: str) -> dict[str, Any]:
    """Read the connection's extras and check them against the form; fields left empty are absent.

    Numbers may be written as text, because a connection given as a URI knows only text.

    :param connection: an Airflow connection.
    :param connection_type: the type with the form.
    :raises InvalidConnectionError: when the connection is of another type, when its extra is
        no JSON object, when an extra is not a field of the form, or when a value is of the
        wrong type or out of range; the message names the extra and the known ones.
    """
    where = f"connection {connection.conn_id!r}"
    if connection.conn_type != connection_type:
        raise InvalidConnectionError(
            f"{where} is of type {connection.conn_type!r}; type {connection_type!r} is needed",
            connection=connection.conn_id,
        )
    fields = form_fields(connection_type)
    extras = {}
    for name, value in parse_extra(connection).items():
        if name not in fields:
            raise InvalidConnectionError(
                f"{where}: extra {name!r} is not known; known: {', '.join(sorted(fields))}",
                connection=connection.conn_id,
                extra=name,
            )
        if value is not None and value != "":
            extras[name] = _checked(f"{where}: extra {name!r}", value, fields[name])
    return extras


def parse_extra(connection: Connection) -> dict[str, Any]:
    """The connection's extra as a JSON object; empty when there is none.

    :raises InvalidConnectionError: when it is something else. Airflow itself only logs that and continues
        without extras, so a typing error would select the defaults.
    """
    try:
        extra = json.loads(connection.extra or "{}")
    except json.JSONDecodeError as error:
        # The message does not repeat the text, which may contain secrets.
        raise InvalidConnectionError(
            f"connection {connection.conn_id!r}: extra is not JSON "
            f"(line {error.lineno}, column {error.colno}: {error.msg})",
            connection=connection.conn_id,
        ) from None
    if not isinstance(extra, dict):
        raise InvalidConnectionError(
            f"connection {connection.conn_id!r}: extra must be a JSON object, not {type(extra).__name__}",
            connection=connection.conn_id,
        )
    return extra


def _checked(what: str, given: Any, schema: Mapping[str, Any]) -> Any:
    value = given
    if "number" in schema["type"] and isinstance(given, str):
        with suppress(ValueError):
            value = float(given)
    is_nan = value != value  # no JSON schema excludes it
    if is_nan or not Draft202012Validator(schema).is_valid(value):
        raise InvalidConnectionError(f"{what} {_problem(given, schema)}")
    return value


def _problem(given: Any, schema: Mapping[str, Any]) -> str:
    if "number" in schema["type"]:
        above = f" above {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else ""
        return f"must be a number{above}, not {given!r}"
    if isinstance(given, str):
        return f"is {given!r}; known: {', '.join(schema['enum'])}"
    return f"must be text, not {type(given).__name__}"  # without the value: it may contain a secret
