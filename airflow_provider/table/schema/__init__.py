"""A table's columns: Arrow and Avro types, evolution, conversion of values, and schema on read.

Begin with :class:`TableSchema`. Only ``schema_on_read`` reads storage: the history of a table's schemas.
"""

from airflow_provider.table.schema.arrow_avro import (
    META_COLUMNS,
    arrow_to_avro,
    avro_to_arrow,
    conform,
    with_meta_columns,
    without_meta_columns,
)
from airflow_provider.table.schema.column_types import to_schema, type_name
from airflow_provider.table.schema.conversion import Origin, Origins, converted
from airflow_provider.table.schema.evolution import (
    FILL,
    VALIDATE,
    ColumnChange,
    check_roles,
    evolved,
    widened,
)
from airflow_provider.table.schema.schema_on_read import LATEST_SCHEMA, ColumnIds, history_path, read_history
from airflow_provider.table.schema.table_schema import SCHEMA, TableSchema

__all__ = [
    "FILL",
    "LATEST_SCHEMA",
    "META_COLUMNS",
    "SCHEMA",
    "VALIDATE",
    "ColumnChange",
    "ColumnIds",
    "Origin",
    "Origins",
    "TableSchema",
    "arrow_to_avro",
    "avro_to_arrow",
    "check_roles",
    "conform",
    "converted",
    "evolved",
    "history_path",
    "read_history",
    "to_schema",
    "type_name",
    "widened",
    "with_meta_columns",
    "without_meta_columns",
]
