"""The translation of this package's objects into Hive's structs, and back."""

from __future__ import annotations

import copy
import json
import struct as packing
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from cachetools import LRUCache, cached
from thriftpy2.protocol import TApacheJSONProtocol
from thriftpy2.thrift import TType
from thriftpy2.transport import TMemoryBuffer
from thriftpy2.utils import serialize

from airflow_provider.exceptions import NoSuchObjectError
from airflow_provider.metastore.model import (
    CATALOG,
    EXTERNAL_TABLE,
    HUDI,
    HUDI_TABLE_TYPE,
    MANAGED_TABLE,
    NO_ID,
    PROVIDER,
    USER,
    DatabaseInfo,
    FunctionInfo,
    ListedValues,
    PartitionInfo,
    PartitionValues,
    TableInfo,
    decode_table,
    encode_table,
    partition_key,
    partition_texts,
    partition_values,
    storage_descriptor,
)
from airflow_provider.metastore.thrift.protocol.encoded_partitions import (
    SAMPLE,
    EncodedPartitions,
    PartitionMold,
    encoded_list,
)
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.spark_properties import is_derived, spark_properties
from airflow_provider.table.keys import escape_path_name, unescape_path_name
from airflow_provider.table.properties import MERGE_ON_READ

# Field ids: a Table's StorageDescriptor, and a StorageDescriptor's SkewedInfo.
_STORAGE, _SKEWED = "7", "11"
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet"
_PARQUET_INPUT = f"{_PARQUET}.MapredParquetInputFormat"
_HUDI_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_HUDI_MERGING_INPUT = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
# True in a serializer's parameters: engines read base files alone, as of Hive sync's table NAME_ro.
_READ_OPTIMIZED = "hoodie.query.as.ro.table"
# Spark reads a table with a serializer for Parquet by itself, whatever its input format: all files, also
# those of old file slices.
_NOT_PARQUET = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"

# Thrift's binary protocol: a list's type of elements and their number, and the length of a text.
_LIST, _LENGTH = packing.Struct(">bi"), packing.Struct(">i")
# Bytes of encoded names that are kept; the values that they are of may take ten times as many.
_MOST_NAMES = 4_000_000
_MOST_MOLDS = 1_024  # tables


class EncodedTable(NamedTuple):
    """A Table struct in its bytes on the wire."""

    encoded: bytes


class EncodedNames(NamedTuple):
    """A list of texts in its bytes on the wire."""

    encoded: bytes


class TableStructs:
    """Makes Table structs, and encodes each object only once as long as a replica's memory holds it.

    :param clients_have_hudi: see :func:`table_struct`.
    :param max_bytes: the most bytes that it keeps. It drops an object's bytes with the object.
    """

    def __init__(self, *, clients_have_hudi: bool = True, max_bytes: int = 64_000_000) -> None:
        self._have_hudi = clients_have_hudi
        self._lock = threading.Lock()
        # By the objects' identity, because they hold dictionaries and have no hash.
        self._kept: LRUCache[int, tuple[weakref.ref[TableInfo], EncodedTable]] = LRUCache(
            max_bytes, getsizeof=lambda kept: len(kept[1].encoded)
        )
        self._molds: LRUCache[int, tuple[weakref.ref[TableInfo], dict[str | None, PartitionMold]]] = LRUCache(
            _MOST_MOLDS
        )
        self._gone: deque[int] = deque()

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        with self._lock:
            self._drop_gone()
            return int(self._kept.currsize)

    def of(self, table: TableInfo) -> Any:
        """The struct of a table."""
        return table_struct(table, clients_have_hudi=self._have_hudi)

    def encoded(self, table: TableInfo) -> EncodedTable:
        """The encoded struct of a table, which the processor sends without encoding it again."""
        key = id(table)
        with self._lock:
            found = self._kept.get(key)
        if found is not None and found[0]() is table:
            return found[1]
        made = EncodedTable(serialize(self.of(table)))
        # The thread that drops the last reference may hold any lock, so it only notes the key.
        kept = (weakref.ref(table, lambda _: self._gone.append(key)), made)
        with self._lock:
            self._drop_gone()
            if len(made.encoded) <= self._kept.maxsize:
                self._kept[key] = kept
        return made

    def of_partitions(self, table: TableInfo, partitions: Sequence[PartitionInfo]) -> list[Any]:
        """The structs of a table's partitions.

        :param table: the table.
        :param partitions: some of its partitions.
        """
        of_table = self.of(table) if partitions else None
        return [partition_struct(table, of_table, one) for one in partitions]

    def encoded_partitions(self, table: TableInfo, partitions: Sequence[PartitionInfo]) -> EncodedPartitions:
        """The encoded structs of a table's partitions.

        :param table: the table.
        :param partitions: some of its partitions.
        """
        key = id(table)
        with self._lock:
            found = self._molds.get(key)
        if found is None or found[0]() is not table:
            found = (weakref.ref(table, lambda _: self._gone.append(key)), {})
            with self._lock:
                self._drop_gone()
                self._molds[key] = found
        molds, of_table = found[1], None
        for descriptor in {each.storage_descriptor for each in partitions} - molds.keys():
            of_table = of_table or self.of(table)
            sample = replace(SAMPLE, storage_descriptor=descriptor)
            molds[descriptor] = PartitionMold(partition_struct(table, of_table, sample))
        return encoded_list([molds[each.storage_descriptor].encoded(each) for each in partitions])

    def _drop_gone(self) -> None:
        while self._gone:
            key = self._gone.popleft()
            self._kept.pop(key, None)
            self._molds.pop(key, None)


def table_struct(table: TableInfo, *, clients_have_hudi: bool = True) -> Any:
    """The struct of a table for a client.

    A table that none of Hive's clients created has the description of Hudi's own Hive sync: the formats by
    which Hive reads it, and the schema in Spark's properties.

    :param clients_have_hudi: False for clients without Hudi's bundle, which cannot even list a table of a
        data source that they do not know. They get a Hive table, which they can list. They cannot read it,
        because they lack its input format.
    """
    is_hudi = table.parameters.get(PROVIDER) == HUDI
    skewed = table.hive_fields.get(_STORAGE, {}).get("rec", {}).get(_SKEWED)
    known = table if skewed is None else _without_skew(table)
    trans = TMemoryBuffer(b'[1,"",1,0,%s]' % encode_table(known).encode())
    protocol = TApacheJSONProtocol(trans)
    protocol.read_message_begin()
    struct = protocol.read_struct(hive.Table())
    storage = struct.sd
    storage.skewedInfo = _skewed_struct(skewed)
    # Hive says it of each table, and so do its clients when they send a table back: see _set.
    storage.storedAsSubDirectories = storage.storedAsSubDirectories or False
    struct.rewriteEnabled = struct.rewriteEnabled or False
    struct.writeId = -1 if table.parameters.get("transactional", "").lower() == "true" else 0
    storage.location = storage.location or None
    if storage.serdeInfo is None:
        storage.inputFormat = _hudi_input(table) if is_hudi else _PARQUET_INPUT
        storage.outputFormat = f"{_PARQUET}.MapredParquetOutputFormat"
        storage.serdeInfo = hive.SerDeInfo(
            serializationLib=f"{_PARQUET}.serde.ParquetHiveSerDe",
            parameters={"path": table.location, "serialization.format": "1"},
        )
        if is_hudi:
            storage.serdeInfo.parameters[_READ_OPTIMIZED] = "false"
        storage.numBuckets = -1
        storage.compressed = False
    if is_hudi and clients_have_hudi:
        struct.parameters = struct.parameters | spark_properties(table)
    elif is_hudi:
        del struct.parameters[PROVIDER]
        storage.inputFormat = _hudi_input(table)
        storage.serdeInfo.serializationLib = _NOT_PARQUET
    for absent, value in (("bucketCols", []), ("sortCols", []), ("parameters", {})):
        if getattr(storage, absent) is None:
            setattr(storage, absent, value)
    return struct


def _hudi_input(table: TableInfo) -> str:
    """The input format of a Hudi table, as Hudi's ``HiveSyncTool`` registers it under its own name."""
    merges = table.parameters.get(HUDI_TABLE_TYPE) == MERGE_ON_READ
    return _HUDI_MERGING_INPUT if merges else _HUDI_INPUT


def read_table(struct: Any) -> TableInfo:
    """Read a table's struct, without derived properties and without empty fields."""
    table = _decoded(struct)
    nothing = _says_nothing()
    for name in [name for name, value in table.hive_fields.items() if nothing.get(name) == value]:
        del table.hive_fields[name]
    return _without_derived(table)


@lru_cache(maxsize=1)
def _says_nothing() -> dict[str, Any]:
    """The fields of an empty Table struct beside those of :class:`TableInfo`."""
    return _decoded(hive.Table()).hive_fields


def _decoded(struct: Any) -> TableInfo:
    trans = TMemoryBuffer()
    protocol = TApacheJSONProtocol(trans)
    protocol.write_message_begin("", 1, 0)
    protocol.write_struct(_set(struct))
    fields = json.loads(trans.getvalue())[4]
    if (skewed := _skewed_fields(struct.sd and struct.sd.skewedInfo)) is not None:
        fields[_STORAGE]["rec"][_SKEWED] = skewed
    return decode_table(json.dumps(fields, ensure_ascii=False))


def _without_skew(table: TableInfo) -> TableInfo:
    rest = {key: value for key, value in table.hive_fields[_STORAGE]["rec"].items() if key != _SKEWED}
    return replace(table, hive_fields={**table.hive_fields, _STORAGE: {"rec": rest}})


def _skewed_struct(fields: Any) -> Any:
    if fields is None:
        return hive.SkewedInfo(skewedColNames=[], skewedColValues=[], skewedColValueLocationMaps={})
    names, values = (fields["rec"].get(number, {}).get("lst", [None, 0]) for number in ("1", "2"))
    return hive.SkewedInfo(
        skewedColNames=names[2:],
        skewedColValues=[one[2:] for one in values[2:]],
        skewedColValueLocationMaps={},
    )


def _skewed_fields(struct: Any) -> dict[str, Any] | None:
    """The skewed columns and values in Thrift's JSON; None without skew."""
    if struct is None or not struct.skewedColNames:
        return None
    names = ["str", len(struct.skewedColNames), *struct.skewedColNames]
    values = [["str", len(one), *one] for one in struct.skewedColValues or []]
    return {"rec": {"1": {"lst": names}, "2": {"lst": ["lst", len(values), *values]}}}


def _set(struct: Any) -> Any:
    """The struct with its required fields, and with Hive's table type."""
    struct, storage = copy.copy(struct), copy.copy(struct.sd or hive.StorageDescriptor())
    struct.sd, struct.privileges, struct.fileMetadata, struct.dictionary = storage, None, None, None
    # SkewedInfo holds a list of lists, which the protocol's writer does not support: _skewed_fields.
    storage.skewedInfo = None
    storage.storedAsSubDirectories = storage.storedAsSubDirectories or None
    struct.rewriteEnabled, struct.writeId = struct.rewriteEnabled or None, -1
    external = (struct.parameters or {}).get("EXTERNAL", "").upper()
    if struct.tableType in (None, "", MANAGED_TABLE):
        struct.tableType = EXTERNAL_TABLE if external == "TRUE" else MANAGED_TABLE
    elif struct.tableType == EXTERNAL_TABLE and external == "FALSE":
        struct.tableType = MANAGED_TABLE  # as SET TBLPROPERTIES ('EXTERNAL' = 'FALSE') asks for
    return struct


def _without_derived(table: TableInfo) -> TableInfo:
    """The table without the additions of :func:`table_struct`, which a client that alters it sends back."""
    storage = table.hive_fields.get("7", {}).get("rec", {})
    if storage.get("3", {}).get("str") == _hudi_input(table) and not _is_read_optimized(storage):
        table.parameters[PROVIDER] = HUDI
        # The path in the serializer's parameters follows the location.
        del table.hive_fields["7"]
    elif storage.get("3", {}).get("str") == _PARQUET_INPUT:
        others = {key: value for key, value in table.hive_fields.items() if key != "7"}
        bare = replace(table, hive_fields=others)
        if _decoded(table_struct(bare)).hive_fields["7"] == table.hive_fields["7"]:
            del table.hive_fields["7"]
    if table.parameters.get(PROVIDER) == HUDI:
        for name in [name for name in table.parameters if is_derived(name)]:
            del table.parameters[name]
    return table


def _is_read_optimized(storage: Mapping[str, Any]) -> bool:
    """Whether a storage descriptor in Thrift's JSON is of a table of base files alone."""
    _, _, _, parameters = storage.get("7", {}).get("rec", {}).get("3", {}).get("map", [None, None, 0, {}])
    return bool(parameters.get(_READ_OPTIMIZED) == "true")


def database_struct(database: DatabaseInfo, location: str | None) -> Any:
    """The struct of a database for a client.

    :param location: the default folder or URL of its tables.
    """
    return hive.Database(
        name=database.name,
        description=database.comment,
        locationUri=location,
        parameters=database.parameters,
        ownerName=database.owner,
        ownerType=database.owner_type,
        catalogName=CATALOG,
        type=hive.DatabaseType.NATIVE,
    )


def read_database(struct: Any) -> DatabaseInfo:
    """Read a database's struct; Hive's struct has no field for the database's id."""
    return DatabaseInfo(
        NO_ID,
        struct.name,
        struct.locationUri,
        struct.description,
        dict(struct.parameters or {}),
        struct.ownerName,
        USER if struct.ownerType is None else struct.ownerType,
    )


def partition_struct(table: TableInfo, of_table: Any, partition: PartitionInfo) -> Any:
    """The struct of a partition for a client: its location, with its own storage descriptor or the table's.

    :param of_table: the table's own struct.
    """
    own = partition.storage_descriptor
    storage = copy.copy(of_table.sd if own is None else _storage_struct(own))
    storage.location = partition.location
    return hive.Partition(
        values=partition_texts(partition.values),
        dbName=table.database,
        tableName=table.name,
        createTime=of_table.createTime or 0,
        lastAccessTime=0,
        sd=storage,
        parameters=partition.parameters,
        catName=CATALOG,
    )


def read_storage_descriptor(table: TableInfo, of_table: Any, struct: Any) -> str | None:
    """The part of a client's storage descriptor that a partition keeps.

    :param of_table: the table's own struct.
    :param struct: the partition's struct.
    :return: None when the partition follows its table: a Hudi table, or one that none of Hive's clients has
        described.
    """
    if struct is None or table.parameters.get(PROVIDER) == HUDI:
        return None
    kept = _storage_text(struct)
    follows = _STORAGE not in table.hive_fields and kept == _storage_text(of_table.sd)
    return None if follows else kept


def _storage_text(struct: Any) -> str | None:
    struct = copy.copy(struct)
    struct.skewedInfo, struct.storedAsSubDirectories = None, None
    trans = TMemoryBuffer()
    protocol = TApacheJSONProtocol(trans)
    protocol.write_message_begin("", 1, 0)
    protocol.write_struct(struct)
    found = storage_descriptor(json.loads(trans.getvalue())[4])
    # A descriptor with columns and without formats describes no files.
    return found if struct.inputFormat or (struct.serdeInfo and struct.serdeInfo.serializationLib) else None


@lru_cache(maxsize=1_024)
def _storage_struct(descriptor: str) -> Any:
    trans = TMemoryBuffer(b'[1,"",1,0,%s]' % descriptor.encode())
    protocol = TApacheJSONProtocol(trans)
    protocol.read_message_begin()
    storage = protocol.read_struct(hive.StorageDescriptor())
    storage.skewedInfo, storage.storedAsSubDirectories = _skewed_struct(None), False
    return storage


def read_partition(struct: Any) -> PartitionInfo:
    """Read a partition's struct."""
    return PartitionInfo(
        partition_values(struct.values), struct.sd.location or "", dict(struct.parameters or {})
    )


def partition_name(table: TableInfo, values: Sequence[str | None]) -> str:
    """The partition's name, such as ``year=2013/month=1``, escaped as in Hive.

    :raises InvalidInputError: when the values do not fit the table's partition keys.
    """
    if len(values) != len(table.partition_keys):
        partition_key(table, values)  # raises
    return "/".join(
        f"{escape_path_name(key.name.lower())}={escape_path_name(text)}"
        for key, text in zip(table.partition_keys, partition_texts(values), strict=True)
    )


def partition_names(table: TableInfo, partitions: Iterable[Sequence[str | None]]) -> list[str]:
    """The names of existing partitions, as :func:`partition_name` forms them."""
    return _names([key.name for key in table.partition_keys], partitions)


def encoded_names(table: TableInfo, partitions: Sequence[PartitionValues]) -> EncodedNames:
    """The same names, encoded; the last ones are kept, for tables that change seldom."""
    listed = partitions if isinstance(partitions, ListedValues) else tuple(partitions)
    return _encoded_names(tuple(key.name for key in table.partition_keys), listed)


@cached(LRUCache(_MOST_NAMES, getsizeof=lambda names: len(names.encoded)), lock=threading.Lock())
def _encoded_names(keys: tuple[str, ...], partitions: tuple[PartitionValues, ...]) -> EncodedNames:
    texts = [name.encode() for name in _names(keys, partitions)]
    start = _LIST.pack(TType.STRING, len(texts))
    return EncodedNames(start + b"".join(_LENGTH.pack(len(text)) + text for text in texts))


def _names(keys: Iterable[str], partitions: Iterable[Sequence[str | None]]) -> list[str]:
    beginnings = [f"{escape_path_name(key.lower())}=" for key in keys]
    return [
        "/".join(map(str.__add__, beginnings, map(escape_path_name, partition_texts(values))))
        for values in partitions
    ]


def values_in_name(table: TableInfo, name: str) -> list[str]:
    """The values in a partition's name, ``year=2013/month=1``.

    :raises NoSuchObjectError: when the text cannot name a partition of this table.
    """
    steps = [step.partition("=") for step in name.split("/")]
    keys = [unescape_path_name(key).lower() for key, _, _ in steps]
    if keys != [key.name.lower() for key in table.partition_keys]:
        raise NoSuchObjectError(
            f"table {table.full_name} has no partition {name!r}; its partition keys are "
            f"{[key.name for key in table.partition_keys]}",
            table=table.full_name,
        )
    return [unescape_path_name(value) for _, _, value in steps]


def function_struct(function: FunctionInfo) -> Any:
    """The struct of a function for a client."""
    kinds = {"zip": "ARCHIVE", "tar": "ARCHIVE", "gz": "ARCHIVE", "tgz": "ARCHIVE", "jar": "JAR"}
    resources = [
        hive.ResourceUri(
            resourceType=getattr(hive.ResourceType, kinds.get(uri.rsplit(".", 1)[-1].lower(), "FILE")),
            uri=uri,
        )
        for uri in function.resources
    ]
    return hive.Function(
        functionName=function.name,
        dbName=function.database,
        className=function.class_name,
        ownerName=function.owner,
        ownerType=hive.PrincipalType.USER,
        createTime=0,
        functionType=hive.FunctionType.JAVA,
        resourceUris=resources,
        catName=CATALOG,
    )


def read_function(struct: Any) -> FunctionInfo:
    """Read a function's struct."""
    return FunctionInfo(
        struct.dbName,
        struct.functionName,
        struct.className,
        struct.ownerName,
        tuple(one.uri for one in struct.resourceUris or ()),
    )
