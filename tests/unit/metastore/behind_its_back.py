"""What a test changes in a metastore's database itself, as only time would."""

from __future__ import annotations

from sqlalchemy import create_engine, text


def change_rows(url: str, statement: str, **values: object) -> int:
    """How many rows an UPDATE changed."""
    engine = create_engine(url)
    with engine.begin() as connection:
        changed = connection.execute(text(statement), values).rowcount
    engine.dispose()
    return changed
