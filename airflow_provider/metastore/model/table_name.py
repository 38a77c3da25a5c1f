"""How a person names a table: ``database.table``, a path or a URL."""

from __future__ import annotations

from airflow_provider.exceptions import InvalidInputError


def check_table_given(table: object) -> None:
    """Make sure that there is a text that can name a table.

    :param table: what a caller gives.
    :raises InvalidInputError: when there is none.
    """
    if not isinstance(table, str) or table.strip() in ("", "None"):
        raise InvalidInputError(f"table must be database.table, an absolute path or a URL, not {table!r}")


def is_location(table: str) -> bool:
    """Whether a table is given by its path or URL, and not by its name in the metastore."""
    return "/" in table


def split_table_name(table: str) -> tuple[str, str]:
    """Database and name of a registered table.

    :param table: ``database.table``.
    :raises InvalidInputError: when it has not two non-empty parts.
    """
    database, dot, name = table.partition(".")
    if not (database and dot and name) or "." in name:
        raise InvalidInputError(
            f"table {table!r} is not a name of the form database.table, such as lake.flights", table=table
        )
    return database, name
