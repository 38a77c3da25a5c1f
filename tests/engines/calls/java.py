"""Calls of Hive's Java client, of each method of the interface ``IMetaStoreClient`` of 2.3.10 and of 4.0.1.

A client of a version without a method skips its calls.
"""

from __future__ import annotations

from tests.engines.calls import java_catalog as catalog
from tests.engines.calls import java_services as services
from tests.engines.calls.java_objects import Call


def calls() -> list[Call]:
    """All calls, in an order in which they succeed one after the other."""
    parts = (catalog.client, catalog.databases, catalog.tables, catalog.partitions, catalog.statistics_of)
    more = (catalog.changes, services.constraints, services.functions, services.users, services.transactions)
    last = (services.locks, services.events, services.nothing_kept, services.ends)
    return [one for part in (*parts, *more, *last) for one in part()]
