"""The names by which a person means a table: ``database.table``, a path or a URL."""

from __future__ import annotations

from airflow_provider.exceptions import InvalidInputError


def check_table_given(table: object) -> None:
    """Check that a value can name a table.

    :param table: the value that a caller gives.
    :raises InvalidInputError: when it is no text, or an empty one.
    """
    if not isinstance(table, str) or table.strip() in ("", "None"):
        raise InvalidInputError(f"table must be database.table, an absolute path or a URL, not {table!r}")


def is_location(table: str) -> bool:
    """Whether a text is a table's path or URL, and not its name in the metastore."""
    return "/" in table


def split_table_name(table: str) -> tuple[str, str]:
    """Database and name of a registered table.

    :param table: ``database.table``.
    :raises InvalidInputError: when the name has not two non-empty parts.
    """
    database, dot, name = table.partition(".")
    if not (database and dot and name) or "." in name:
        raise InvalidInputError(
            f"table {table!r} is not a name of the form database.table, such as lake.flights", table=table
        )
    return database, name
