"""Changes of rows in a metastore's database that otherwise only time causes."""

from __future__ import annotations

from sqlalchemy import create_engine, text


def change_rows(url: str, statement: str, **values: object) -> int:
    """Run an UPDATE; return the number of changed rows."""
    engine = create_engine(url)
    with engine.begin() as connection:
        changed = connection.execute(text(statement), values).rowcount
    engine.dispose()
    return changed
