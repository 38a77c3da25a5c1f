"""Lineage of a write for Airflow: the table's asset, and OpenLineage's datasets with their facets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from airflow_provider.assets import table_asset
from airflow_provider.exceptions import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.providers.openlineage.extractors import OperatorLineage

_PATTERN = re.compile(r"[*?\[{]")
_EXTRA = ("instant", "completion_time", "rows_inserted", "rows_updated", "rows_deleted", "event_id")


def outlet_of(table: object) -> Asset | None:
    """The asset of a table; None if only the running task knows the table's name.

    :param table: an operator's argument, perhaps a template.
    """
    if not isinstance(table, str) or "{{" in table or "{%" in table:
        return None
    try:
        return table_asset(table)
    except InvalidInputError:
        return None  # the task raises the error


def event_extra(result: Mapping[str, Any]) -> dict[str, Any]:
    """The extra of the asset's event for a write.

    :param result: the operator's result.
    """
    return {name: result[name] for name in _EXTRA}


def lineage_of(
    sources: Iterable[str],
    table: str,
    location: str,
    schema: pa.Schema | None = None,
    result: Mapping[str, Any] | None = None,
) -> OperatorLineage[Any, Any]:
    """The sources of a write as inputs, the table as output.

    The table's dataset is named by its location, as OpenLineage names data on a storage, and as Spark does;
    its name in the metastore is added as a symbolic link.

    :param sources: paths, URLs or patterns of the files that are read.
    :param table: the operator's argument for the table.
    :param location: location of the table.
    :param schema: its columns; left out when None.
    :param result: the write's result; None for a write that failed, which has no statistics and version.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        output_statistics_output_dataset,
        schema_dataset,
        symlinks_dataset,
    )

    facets: dict[str, Any] = {}
    statistics: dict[str, Any] = {}
    if schema is not None:
        fields = [schema_dataset.SchemaDatasetFacetFields(each.name, str(each.type)) for each in schema]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if table != location:
        link = symlinks_dataset.Identifier("hudi", table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([link])
    if result is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(result["instant"]))
        rows = result["rows_inserted"] + result["rows_updated"]
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, size=result["bytes"], fileCount=result["files_written"]
        )
    return OperatorLineage(
        inputs=[InputDataset(*_dataset_name(each)) for each in sources],
        outputs=[OutputDataset(*_dataset_name(location), facets=facets, outputFacets=statistics)],
    )


def _dataset_name(location: str) -> tuple[str, str]:
    """Namespace and name of the data at a location, by OpenLineage's rules; for a pattern, of its folder."""
    if found := _PATTERN.search(location):
        location = location[: found.start()].rpartition("/")[0]
    scheme, separator, rest = location.partition("://")
    if not separator or scheme == "file":
        return "file", (rest if separator else location).rstrip("/") or "/"
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.rstrip("/") or "/"
