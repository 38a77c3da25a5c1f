"""``hoodie.properties``: the configuration of a table.

Property names and defaults are those of Hudi's ``HoodieTableConfig``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider.exceptions import CorruptTableError, InvalidInputError, UnsupportedTableError

PROPERTIES_PATH = ".hoodie/hoodie.properties"
"""Path of a table's properties, relative to the table."""

_NAME = "hoodie.table.name"
_DATABASE = "hoodie.database.name"
_TYPE = "hoodie.table.type"
_VERSION = "hoodie.table.version"
_LAYOUT = "hoodie.timeline.layout.version"
_CHECKSUM = "hoodie.table.checksum"
_RECORD_KEY = "hoodie.table.recordkey.fields"
_PARTITION = "hoodie.table.partition.fields"
_ORDERING = "hoodie.table.ordering.fields"
_ORDERING_V8 = "hoodie.table.precombine.field"
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
_CREATE_SCHEMA = "hoodie.table.create.schema"
_TIMEZONE = "hoodie.table.timeline.timezone"
TIMELINE_ZONE = "hoodie.table.timeline.timezone.name"
"""The table's option that names the zone of the JVMs that write to it, if its timeline is LOCAL."""
LOCAL = "LOCAL"
TRANSACTIONAL_PROPERTIES = "hoodie.table.transactional_properties"
"""The table's option for the operations that it takes, with the values of Hive's table parameter."""
ALL_OPERATIONS, INSERT_ONLY = "default", "insert_only"
"""Its values: a table that takes all operations, and one that takes no updates and no deletes."""
INDEX_TYPE = "hoodie.index.type"
NUMBER_OF_BUCKETS = "hoodie.bucket.index.num.buckets"
BUCKET_HASH_FIELD = "hoodie.bucket.index.hash.field"
BUCKET_ENGINE = "hoodie.index.bucket.engine"
CONSISTENT_HASHING = "CONSISTENT_HASHING"
LEAST_BUCKETS_OF_A_PARTITION = "hoodie.bucket.index.min.num.buckets"
MOST_BUCKETS_OF_A_PARTITION = "hoodie.bucket.index.max.num.buckets"
BUCKET_SPLIT_THRESHOLD = "hoodie.bucket.index.split.threshold"
BUCKET_MERGE_THRESHOLD = "hoodie.bucket.index.merge.threshold"
MOST_BUCKETS = 10_000
"""The most buckets of a partition: with more, a file id would not show that a file group is a bucket."""
LOG_BLOCK_FORMAT = "hoodie.logfile.data.block.format"
"""The option for the format in which log files hold new versions of records."""
MERGE_MEMORY = "hoodie.memory.merge.max.size"
COMPACTION_MEMORY = "hoodie.memory.compaction.max.size"
CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
NON_BLOCKING_NEEDS = (
    "only a merge-on-read table with a bucket index lets writers append to one file group without a look at "
    f"each other; create it with table_type='merge_on_read' and hudi_options {INDEX_TYPE}=BUCKET and "
    f"{NUMBER_OF_BUCKETS}, or leave the concurrency out"
)
"""The requirements of non-blocking concurrency, for errors."""
_KEY_GENERATOR_TYPE = "hoodie.table.keygenerator.type"
_KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"
_DROPS_PARTITION_COLUMNS = "hoodie.datasource.write.drop.partition.columns"
_META_FIELDS = "hoodie.populate.meta.fields"
_METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
_INFLIGHT_METADATA_PARTITIONS = "hoodie.table.metadata.partitions.inflight"

_KEY_GENERATORS = {"SIMPLE", "COMPLEX", "NON_PARTITION"}
_LAYOUTS = {6: 1, 8: 2, 9: 2}
"""Timeline layout of each table version that this package can read."""
COPY_ON_WRITE, MERGE_ON_READ = "COPY_ON_WRITE", "MERGE_ON_READ"
_TABLE_TYPES = (COPY_ON_WRITE, MERGE_ON_READ)

# The values that these properties of a table must have, by their names in HoodieTableConfig.
_REQUIRED_SETTINGS = {
    "hoodie.table.base.file.format": ("PARQUET", "only Parquet base files are read and written"),
}


def parse_properties(text: str) -> dict[str, str]:
    """Read the format of ``java.util.Properties``.

    :param text: the file's content.
    :return: the properties, in file order. If a key comes twice, the last value wins, as in Java.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        key = match[0] if match else ""
        value = _SEPARATOR.sub("", line[len(key) :], count=1)
        found[_unescape(key)] = _unescape(value)
    return found


def dump_properties(props: Mapping[str, str]) -> str:
    """Write the format of ``java.util.Properties``, sorted by key, ASCII only.

    :param props: the properties.
    :return: text that :func:`parse_properties` and Java read back unchanged.
    """
    return "".join(f"{_escape(key, key=True)}={_escape(props[key], key=False)}\n" for key in sorted(props))


def table_type_of(name: str) -> str:
    """A table type by the name that a DAG author gives.

    :param name: ``copy_on_write`` or ``merge_on_read``, in either case.
    :raises InvalidInputError: when there is no such type.
    """
    if not isinstance(name, str) or name.upper() not in _TABLE_TYPES:
        known = " or ".join(kind.lower() for kind in _TABLE_TYPES)
        raise InvalidInputError(f"table_type must be {known}, not {name!r}", table_type=name)
    return name.upper()


def table_checksum(database: str, name: str) -> int:
    """The value of ``hoodie.table.checksum``, which the JVM verifies when it opens a table.

    :param database: the database's name; may be empty.
    :param name: the table's name.
    :return: CRC-32 of ``<database>.<name>``.
    """
    return zlib.crc32(f"{database}.{name}".encode())


@dataclass(frozen=True)
class TableConfig:
    """A table's configuration, typed.

    :param name: the table's name.
    :param database: the database's name; empty when there is none.
    :param table_type: ``COPY_ON_WRITE`` or ``MERGE_ON_READ``.
    :param version: table version.
    :param layout: timeline layout version.
    :param record_key_fields: columns that make up the record key; none where Hudi generates the keys.
    :param partition_fields: columns that make up the partition path, in path order.
    :param ordering_fields: columns that decide which of two rows with one key is newer.
    :param hive_style: whether partition folders are named ``column=value``.
    :param url_encode: whether partition values are escaped in paths.
    :param create_schema: Avro schema that the table was created with, JSON.
    :param timezone: the zone of instant times; ``UTC`` or ``LOCAL``.
    :param raw: every property on disk, including unknown ones.
    """

    name: str
    database: str = ""
    table_type: str = "COPY_ON_WRITE"
    version: int = 9
    layout: int = 2
    record_key_fields: tuple[str, ...] = ()
    partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    hive_style: bool = True
    url_encode: bool = True
    create_schema: str | None = None
    timezone: str = "UTC"
    raw: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> TableConfig:
        """Read a configuration.

        :param props: the properties on disk.
        :raises CorruptTableError: when a property that every table has is missing or
            malformed, or the checksum is not that of the table's name.
        :raises UnsupportedTableError: when the table is of a kind that cannot be read
            or written correctly here.
        """
        name, table_type = _require(props, _NAME), _require(props, _TYPE)
        database = props.get(_DATABASE, "")
        _verify_checksum(props, database, name)
        version, layout = _integer(props, _VERSION), _integer(props, _LAYOUT)
        config = cls(
            name=name,
            database=database,
            table_type=table_type,
            version=version,
            layout=layout,
            record_key_fields=_names(props.get(_RECORD_KEY)),
            partition_fields=_partition_names(props.get(_PARTITION)),
            ordering_fields=_names(props.get(_ORDERING) or props.get(_ORDERING_V8)),
            hive_style=props.get(_HIVE_STYLE, "false").lower() == "true",
            url_encode=props.get(_URL_ENCODE, "false").lower() == "true",
            create_schema=props.get(_CREATE_SCHEMA),
            timezone=props.get(_TIMEZONE, LOCAL).upper(),
            raw=dict(props),
        )
        config._verify_supported()
        return config

    def to_properties(self) -> dict[str, str]:
        """The properties to write: those on disk, with this configuration's own on top.

        :return: for a table that is not on disk yet, all that Hudi 1.1 writes for one.
        """
        props = dict(self.raw) if self.raw else self._initial_properties()
        ordering = _ORDERING if self.version >= 9 else _ORDERING_V8
        props |= {
            _NAME: self.name,
            _TYPE: self.table_type,
            _VERSION: str(self.version),
            _LAYOUT: str(self.layout),
            _CHECKSUM: str(table_checksum(self.database, self.name)),
            _HIVE_STYLE: str(self.hive_style).lower(),
            _URL_ENCODE: str(self.url_encode).lower(),
            _TIMEZONE: self.timezone,
        }
        optional = {
            _DATABASE: self.database,
            _RECORD_KEY: ",".join(self.record_key_fields),
            _PARTITION: self._partition_property(),
            ordering: ",".join(self.ordering_fields),
            _CREATE_SCHEMA: self.create_schema or "",
        }
        return props | {key: value for key, value in optional.items() if value}

    @property
    def key_generator(self) -> str:
        """How Hudi builds keys and paths: ``SIMPLE``, ``COMPLEX``, ``NON_PARTITION``; others are only read.

        If the table does not name one, it is inferred as in Hudi's ``KeyGenUtils``.
        """
        if kind := self.raw.get(_KEY_GENERATOR_TYPE):
            return kind.upper().removesuffix("_AVRO")
        if full_name := self.raw.get(_KEY_GENERATOR_CLASS):
            simple = full_name.rpartition(".")[2].removesuffix("KeyGenerator").removesuffix("Avro").upper()
            return {"NONPARTITIONED": "NON_PARTITION"}.get(simple, simple)
        if not self.partition_fields:
            return "NON_PARTITION"
        plain = len(self.partition_fields) == 1 and len(self.record_key_fields) <= 1
        return "SIMPLE" if plain else "COMPLEX"

    @property
    def folders_hold_values(self) -> bool:
        """Whether folders are named by the values of the partition columns.

        Other key generators (``TIMESTAMP``, ``CUSTOM``, a user's class) derive the folders' names from the
        values.
        """
        return self.key_generator in _KEY_GENERATORS

    @property
    def drops_partition_columns(self) -> bool:
        """Whether the files lack the partition columns, whose values are in the folders' names."""
        return self.raw.get(_DROPS_PARTITION_COLUMNS, "false").lower() == "true"

    @property
    def has_meta_columns(self) -> bool:
        """Whether Hudi's own columns are filled."""
        return self.raw.get(_META_FIELDS, "true").lower() == "true"

    @property
    def generates_keys(self) -> bool:
        """Whether no column is a record key, so that each new row gets a key of its own when it is written.

        Hudi's key generators do that since 0.14 (``AutoRecordGenWrapperKeyGenerator``).
        """
        return not self.record_key_fields

    @property
    def is_insert_only(self) -> bool:
        """Whether the table takes no updates and no deletes."""
        return self.raw.get(TRANSACTIONAL_PROPERTIES, "").strip().lower() == INSERT_ONLY

    @property
    def prefixed_record_key(self) -> bool:
        """Whether a record key of one column has the form ``column:value``.

        Hudi's complex key generator does that from table version 9 on (HUDI-7001).
        """
        return len(self.record_key_fields) > 1 or (self.version >= 9 and self.key_generator == "COMPLEX")

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of the metadata table that readers trust, so that writers must update them."""
        return _names(self.raw.get(_METADATA_PARTITIONS))

    @property
    def inflight_metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of the metadata table that are being built: written to, but never read."""
        return _names(self.raw.get(_INFLIGHT_METADATA_PARTITIONS))

    def with_metadata_partitions(self, complete: Iterable[str], inflight: Iterable[str] = ()) -> TableConfig:
        """This configuration with other partitions of the metadata table.

        :param complete: the partitions that readers may trust.
        :param inflight: the partitions that are being built.
        """
        partitions = {
            _METADATA_PARTITIONS: ",".join(sorted(complete)),
            _INFLIGHT_METADATA_PARTITIONS: ",".join(sorted(inflight)),
        }
        return replace(self, raw=self.to_properties() | partitions)

    def _partition_property(self) -> str:
        # For a custom key generator, this property also has the kind of each column:
        # "city:SIMPLE,day:TIMESTAMP".
        written = self.raw.get(_PARTITION)
        if written is not None and _partition_names(written) == self.partition_fields:
            return written
        return ",".join(self.partition_fields)

    def _initial_properties(self) -> dict[str, str]:
        return {
            "hoodie.archivelog.folder": "archived",
            _DROPS_PARTITION_COLUMNS: "false",
            "hoodie.populate.meta.fields": "true",
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"
            if self.ordering_fields
            else "COMMIT_TIME_ORDERING",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.table.format": "native",
            "hoodie.table.initial.version": str(self.version),
            "hoodie.timeline.history.path": "history",
            "hoodie.timeline.path": "timeline",
            _KEY_GENERATOR_TYPE: self.key_generator,
        }

    def _verify_supported(self) -> None:
        if self.table_type not in _TABLE_TYPES:
            known = " or ".join(_TABLE_TYPES)
            raise self._unsupported(_TYPE, self.table_type, known, "Hudi has no other types")
        if self.version not in _LAYOUTS:
            known = ", ".join(map(str, _LAYOUTS))
            raise self._unsupported(
                _VERSION, str(self.version), known, "upgrade or downgrade the table with Hudi's CLI"
            )
        if self.layout != (layout := _LAYOUTS[self.version]):
            why = f"that is the layout of version {self.version}"
            raise self._unsupported(_LAYOUT, str(self.layout), str(layout), why)
        for key, (wanted, why) in _REQUIRED_SETTINGS.items():
            value = self.raw.get(key, wanted)
            if value.lower() != wanted.lower():
                raise self._unsupported(key, value, wanted, why)

    def _unsupported(self, key: str, value: str, wanted: str, why: str) -> UnsupportedTableError:
        return UnsupportedTableError(
            f"table {self.name!r} has {key}={value}, supported is {wanted}: {why}",
            table=self.name,
            property=key,
        )


def _require(props: Mapping[str, str], key: str) -> str:
    value = props.get(key, "")
    if not value:
        raise CorruptTableError(
            f"hoodie.properties has no {key}; restore the file from its backup", property=key
        )
    return value


def _integer(props: Mapping[str, str], key: str) -> int:
    value = _require(props, key)
    if not value.isdecimal():
        raise CorruptTableError(f"hoodie.properties has {key}={value!r}, which is not a number", property=key)
    return int(value)


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def _partition_names(value: str | None) -> tuple[str, ...]:
    return tuple(name.partition(":")[0] for name in _names(value))


def _verify_checksum(props: Mapping[str, str], database: str, name: str) -> None:
    found = props.get(_CHECKSUM)
    expected = str(table_checksum(database, name))
    if found is not None and found != expected:
        raise CorruptTableError(
            f"hoodie.properties of {database}.{name} has {_CHECKSUM}={found}, its name gives {expected}: "
            "the file is damaged, restore it from hoodie.properties.backup",
            property=_CHECKSUM,
        )


# java.util.Properties: a key ends at the first unescaped '=', ':' or white space.
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"^[ \t\f]*(?:[=:][ \t\f]*)?")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {value: f"\\{name}" for name, value in _CONTROL.items()}


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            continued += line[:-1]
            continue
        lines.append(continued + line)
        continued = ""
    return [*lines, continued] if continued else lines


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _CONTROL.get(match[2], match[2]) if match[2] else ""

    # Java escapes UTF-16 units, so a character outside the BMP comes as two escapes.
    return _ESCAPE.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(text: str, *, key: bool) -> str:
    out = []
    for position, character in enumerate(text):
        if character in _CONTROL_NAMES:
            out.append(_CONTROL_NAMES[character])
        elif character in "\\=:#!" or (character == " " and (key or position == 0)):
            out.append(f"\\{character}")
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(out)
