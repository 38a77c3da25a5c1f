"""Rows that a test changes in the database of a metastore, where otherwise only time changes them."""

from __future__ import annotations

from sqlalchemy import create_engine, text


def change_rows(url: str, statement: str, **values: object) -> int:
    """How many rows an UPDATE changed."""
    engine = create_engine(url)
    with engine.begin() as connection:
        changed = connection.execute(text(statement), values).rowcount
    engine.dispose()
    return changed
