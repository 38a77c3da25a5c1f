"""The asset of a table, and its URI.

The asset of a table of a metastore is ``hudi://database/table``. The asset of a table that is given by its
location is ``hudi://localhost/srv/lake/flights``, or ``hudi://s3/bucket/lake/flights`` for
``s3://bucket/lake/flights``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlsplit

from airflow.sdk import Asset

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.metastore.model import split_table_name

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

SCHEME = "hudi"
_LOCAL = "localhost"


def table_asset(table: str) -> Asset:
    """The asset of a table, for ``schedule``, ``inlets`` and ``outlets``.

    ::

        with DAG("flights_report", schedule=[table_asset("lake.flights")]): ...

    :param table: ``database.table``, or the table's path or URL, as the operators take it.
    :return: an asset, which is equal for equal tables.
    :raises InvalidInputError: when the table is neither a name nor a location.
    """
    if not isinstance(table, str) or not table:
        raise InvalidInputError(
            f"table {table!r}: give database.table, an absolute path, or a URL", table=table
        )
    scheme, separator, rest = table.partition("://")
    if separator and scheme != "file":
        return Asset(f"{SCHEME}://{scheme}/{quote(rest.rstrip('/'))}")
    path = rest if separator else table
    if path.startswith("/"):
        return Asset(f"{SCHEME}://{_LOCAL}{quote(path.rstrip('/'))}")
    database, name = split_table_name(table)
    return Asset(f"{SCHEME}://{quote(database)}/{quote(name)}")


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Refuse a URI that stands for no table (Airflow calls it for every asset of this scheme).

    :param uri: the URI.
    :raises ValueError: when it names no table; Airflow expects this class.
    """
    if not uri.netloc or not uri.path.strip("/") or uri.query or uri.fragment:
        raise ValueError(
            f"asset URI {uri.geturl()!r} names no table: write hudi://database/table, "
            "hudi://localhost/absolute/path, or hudi://s3/bucket/path"
        )
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: object) -> Dataset:
    """The dataset of an asset, as OpenLineage names it.

    :param asset: an asset of this scheme.
    :param lineage_context: Airflow's context; not needed.
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = urlsplit(asset.uri)
    path = unquote(parts.path)
    if parts.netloc == _LOCAL:
        return Dataset(namespace="file", name=path)
    if path.count("/") == 1:
        return Dataset(namespace=SCHEME, name=f"{parts.netloc}.{path.lstrip('/')}")
    bucket, _, key = path.lstrip("/").partition("/")
    return Dataset(namespace=f"{parts.netloc}://{bucket}", name=key)
