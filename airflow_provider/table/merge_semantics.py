"""How a table merges two versions of a record, by its ``hoodie.properties``.

Sources: Hudi 1.2's ``HoodieTableConfig.inferMergingConfigsForV9TableCreation`` (the properties that replace a
payload class), ``BufferedRecordMergerFactory`` (the merge modes), ``PartialUpdateHandler`` (partial updates),
``DeleteContext`` and ``RecordContext.isDeleteRecord`` (rows that delete their record).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider.exceptions import UnsupportedTableError
from airflow_provider.table.properties import TableConfig

Mask = npt.NDArray[np.bool_]

MERGE_MODE = "hoodie.record.merge.mode"
STRATEGY = "hoodie.record.merge.strategy.id"
PAYLOAD = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
MERGE_PROPERTY = "hoodie.record.merge.property."
DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"
UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"

IS_DELETED = "_hoodie_is_deleted"
"""The column whose value true makes a row delete its record (``HOODIE_IS_DELETED_FIELD``)."""

COMMIT_TIME, EVENT_TIME = "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"

STRATEGIES = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": COMMIT_TIME,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": EVENT_TIME,
}
_MODELS = "org.apache.hudi.common.model"
PAYLOADS = {
    f"{_MODELS}.OverwriteWithLatestAvroPayload": COMMIT_TIME,
    f"{_MODELS}.OverwriteNonDefaultsWithLatestAvroPayload": COMMIT_TIME,
    f"{_MODELS}.AWSDmsAvroPayload": COMMIT_TIME,
    f"{_MODELS}.DefaultHoodieRecordPayload": EVENT_TIME,
    f"{_MODELS}.EventTimeAvroPayload": EVENT_TIME,
    f"{_MODELS}.PartialUpdateAvroPayload": EVENT_TIME,
    f"{_MODELS}.debezium.PostgresDebeziumAvroPayload": EVENT_TIME,
    f"{_MODELS}.debezium.MySqlDebeziumAvroPayload": EVENT_TIME,
}
"""The merge mode of each payload class that Hudi replaces by a mode and other properties."""

_DEBEZIUM_DELETE = {
    f"{MERGE_PROPERTY}{DELETE_FIELD}": "_change_operation_type",
    f"{MERGE_PROPERTY}{DELETE_MARKER}": "d",
}
_OF_PAYLOADS: dict[str, dict[str, str]] = {
    f"{_MODELS}.OverwriteNonDefaultsWithLatestAvroPayload": {PARTIAL_UPDATE: "IGNORE_DEFAULTS"},
    f"{_MODELS}.AWSDmsAvroPayload": {
        f"{MERGE_PROPERTY}{DELETE_FIELD}": "Op",
        f"{MERGE_PROPERTY}{DELETE_MARKER}": "D",
    },
    f"{_MODELS}.PartialUpdateAvroPayload": {PARTIAL_UPDATE: "IGNORE_DEFAULTS"},
    f"{_MODELS}.debezium.PostgresDebeziumAvroPayload": {
        PARTIAL_UPDATE: "FILL_UNAVAILABLE",
        f"{MERGE_PROPERTY}{UNAVAILABLE}": "__debezium_unavailable_value",
        "hoodie.table.ordering.fields": "_event_lsn",
        **_DEBEZIUM_DELETE,
    },
    f"{_MODELS}.debezium.MySqlDebeziumAvroPayload": {
        "hoodie.table.ordering.fields": "_event_bin_file,_event_pos",
        **_DEBEZIUM_DELETE,
    },
}

_WITH_THE_JVM = "write it with the Hudi that made it; it can be read here"


class PartialUpdate(StrEnum):
    """Which values of the newer version are gaps, so that the older version's stay
    (``PartialUpdateMode``)."""

    NONE = "NONE"
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    """Nulls are gaps."""
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
    """Texts and bytes that equal a marker are gaps, as Debezium marks values that PostgreSQL did not send."""


@dataclass(frozen=True)
class MergeSemantics:
    """How a table merges two versions of a record.

    :param ordering_fields: the version with larger values in these columns wins. The first column decides
        before the second, and of equal versions the later write wins. Empty when the later write always wins.
    :param partial_update: which values of the newer version come from the older one.
    :param unavailable: the marker of :attr:`PartialUpdate.FILL_UNAVAILABLE`.
    :param delete_field: the column that marks a row which deletes its record.
    :param delete_marker: the value of that column, as text.
    """

    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdate = PartialUpdate.NONE
    unavailable: str | None = None
    delete_field: str | None = None
    delete_marker: str | None = None

    @classmethod
    def of(cls, config: TableConfig) -> MergeSemantics:
        """Read a table's properties.

        :param config: the table's configuration.
        :raises UnsupportedTableError: when a property has an unknown value, such as the merge mode
            ``CUSTOM``. A write would merge rows in another way than the table's owner wants.
        """
        properties = _merge_properties(config)
        field, marker = properties.get(DELETE_FIELD), properties.get(DELETE_MARKER)
        if (field is None) != (marker is None):
            name = DELETE_MARKER if field is None else DELETE_FIELD
            why = f"Hudi needs {DELETE_FIELD} and {DELETE_MARKER}; set both or neither"
            raise refused(config, MERGE_PROPERTY + name, properties[name], why)
        return cls(
            config.ordering_fields if _merge_mode(config) == EVENT_TIME else (),
            _partial_update(config),
            properties.get(UNAVAILABLE),
            field,
            marker,
        )

    @property
    def keeps_values(self) -> bool:
        """Whether a newer version may take values from the older one."""
        if self.partial_update is PartialUpdate.FILL_UNAVAILABLE:
            return self.unavailable is not None
        return self.partial_update is PartialUpdate.IGNORE_DEFAULTS

    def says_nothing(self, column: pa.Array) -> Mask:
        """Which values of a newer version are gaps, so that the older version's values stay.

        :param column: values of one top-level column.
        """
        if self.partial_update is PartialUpdate.IGNORE_DEFAULTS:
            return as_mask(column.is_null())
        if self.unavailable is not None and _is_text_or_bytes(column.type):
            marker = pa.scalar(self.unavailable.encode()).cast(column.type)
            return as_mask(pc.fill_null(pc.equal(column, marker), False))
        return np.zeros(len(column), np.bool_)

    def deletions(self, rows: pa.Table) -> Mask | None:
        """Which rows delete their record.

        :param rows: incoming rows, with the table's types.
        :return: None when the rows have no column that marks deletes.
        """
        found: Mask | None = None
        if IS_DELETED in rows.column_names and pa.types.is_boolean(rows[IS_DELETED].type):
            found = as_mask(pc.fill_null(rows[IS_DELETED].combine_chunks(), False))
        if self.delete_field in rows.column_names:
            values = rows[self.delete_field].combine_chunks().cast(pa.string())
            marked = as_mask(pc.fill_null(pc.equal(values, self.delete_marker), False))
            found = marked if found is None else found | marked
        return found


def properties_of_payload(payload: str) -> dict[str, str]:
    """The properties that replace a payload class in a table of version 9.

    :param payload: one of :data:`PAYLOADS`.
    :return: the properties besides merge mode and strategy (``EightToNineUpgradeHandler``).
    """
    return dict(_OF_PAYLOADS.get(payload, {}))


def check_rows_can_be_merged(config: TableConfig, semantics: MergeSemantics, columns: pa.Schema) -> None:
    """Check a table's columns against its merge semantics, before rows are written.

    :param config: the table's configuration.
    :param semantics: the semantics in that configuration.
    :param columns: the table's columns.
    :raises UnsupportedTableError: when a column's type cannot be compared as Hudi would.
    """
    name = semantics.delete_field
    if name is None or name not in columns.names:
        return
    kind = columns.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise refused(
            config,
            MERGE_PROPERTY + DELETE_FIELD,
            name,
            f"column {name!r} is {kind}, and only texts, integers and booleans read here as in Java; "
            f"{_WITH_THE_JVM}",
        )


def _merge_mode(config: TableConfig) -> str:
    raw, known = config.raw, f"known are {COMMIT_TIME} and {EVENT_TIME}"
    mode, strategy = raw.get(MERGE_MODE, "").upper(), raw.get(STRATEGY, "")
    if mode and mode not in (COMMIT_TIME, EVENT_TIME):
        by = raw.get(PAYLOAD) or strategy
        merger = f"rows that {by or 'it'} merges are not merged here"
        raise refused(config, MERGE_MODE, mode, f"{merger}, {known}; {_WITH_THE_JVM}")
    if strategy and strategy not in STRATEGIES:
        raise refused(config, STRATEGY, strategy, f"its merger is not known here, {known}; {_WITH_THE_JVM}")
    for name in (PAYLOAD, LEGACY_PAYLOAD):
        if (payload := raw.get(name)) and payload not in PAYLOADS:
            raise refused(config, name, payload, f"rows that it merges are not merged here; {_WITH_THE_JVM}")
    by_payload = PAYLOADS.get(raw.get(PAYLOAD) or raw.get(LEGACY_PAYLOAD) or "")
    by_default = EVENT_TIME if config.ordering_fields else COMMIT_TIME
    return mode or STRATEGIES.get(strategy) or by_payload or by_default


def _partial_update(config: TableConfig) -> PartialUpdate:
    value = config.raw.get(PARTIAL_UPDATE) or PartialUpdate.NONE
    try:
        return PartialUpdate(value.upper())
    except ValueError:
        raise refused(
            config, PARTIAL_UPDATE, value, f"known are {', '.join(PartialUpdate)}; {_WITH_THE_JVM}"
        ) from None


def _merge_properties(config: TableConfig) -> dict[str, str]:
    known = (DELETE_FIELD, DELETE_MARKER, UNAVAILABLE)
    found = {name: config.raw[name] for name in known if config.raw.get(name)}
    for key, value in config.raw.items():
        if not key.startswith(MERGE_PROPERTY):
            continue
        name = key.removeprefix(MERGE_PROPERTY)
        if name not in known:
            raise refused(config, key, value, f"what it asks for is not known here; {_WITH_THE_JVM}")
        if value:
            found[name] = value
    return found


def refused(config: TableConfig, key: str, value: str, why: str) -> UnsupportedTableError:
    """The error for a table with a property because of which no rows can be written.

    :param config: the table's configuration.
    :param key: the property.
    :param value: its value.
    :param why: the reason, and the remedy.
    """
    return UnsupportedTableError(
        f"table {config.name!r} has {key}={value}, so that no rows can be written: {why}",
        table=config.name,
        property=key,
        value=value,
    )


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_a(kind) for is_a in kinds)


def as_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Make a mask of NumPy.

    :param values: booleans without a null.
    """
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask
