"""Rows as JSON has them, so that those of two readers can be compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without Hudi's own columns, in an order that does not depend on the reader."""
    found = [
        {
            name: _plain(value)
            for name, value in row.items()
            if not name.startswith("_hoodie_") or _is_data(name)
        }
        for row in rows
    ]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def _is_data(name: str) -> bool:
    return name == "_hoodie_is_deleted"


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return f"0x{bytes(value).hex()}"
        case Decimal():
            return str(value)
        case datetime():
            at = value.astimezone(UTC) if value.tzinfo else value
            return at.replace(tzinfo=None).isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case float():
            return str(value) if math.isnan(value) or math.isinf(value) else value
        case dict():
            # Where a map is empty, pyarrow's pairs do not tell it from a list.
            return [] if not value else {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            # A map comes as pairs from pyarrow, and as a dictionary from Spark.
            if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
                return {str(name): _plain(each) for name, each in value}
            return [_plain(each) for each in value]
    return value
