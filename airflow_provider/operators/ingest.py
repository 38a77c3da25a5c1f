"""Writing rows into a table: a Spark job, between two steps of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
