"""Lists of partitions in their bytes on the wire.

The partitions of a table differ in their values, location and parameters alone. The rest, mostly the columns,
is encoded once for a table.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from thriftpy2.thrift import TType
from thriftpy2.utils import serialize

from airflow_provider.metastore.model import PartitionInfo, partition_texts

# Thrift's binary protocol: the beginnings of a list and of a map, and the length of a text.
_LIST, _MAP, _LENGTH = packing.Struct(">bi"), packing.Struct(">bbi"), packing.Struct(">i")
_VALUE, _LOCATION, _PARAMETER = "\0value\0", "\0location\0", "\0parameter\0"  # no table has such texts

SAMPLE = PartitionInfo((_VALUE,), _LOCATION, {_PARAMETER: _PARAMETER})
"""A partition whose struct shows where values, location and parameters are."""


class EncodedPartitions(NamedTuple):
    """A list of Partition structs in its bytes on the wire."""

    encoded: bytes


class PartitionMold:
    """The bytes that the partitions with one storage descriptor share.

    :param struct: the struct of :data:`SAMPLE` with that storage descriptor.
    """

    def __init__(self, struct: Any) -> None:
        self._begins, rest = serialize(struct).split(_list([_VALUE]))
        self._to_location, rest = rest.split(_text(_LOCATION))
        self._to_parameters, self._ends = rest.split(_map({_PARAMETER: _PARAMETER}))

    def encoded(self, partition: PartitionInfo) -> bytes:
        """The struct of a partition.

        :param partition: the partition; its storage descriptor is that of the mold.
        """
        return b"".join(
            (
                *(self._begins, _list(partition_texts(partition.values))),
                *(self._to_location, _text(partition.location)),
                *(self._to_parameters, _map(partition.parameters), self._ends),
            )
        )


def encoded_list(structs: Sequence[bytes]) -> EncodedPartitions:
    """The list of some structs.

    :param structs: the encoded structs.
    """
    return EncodedPartitions(_LIST.pack(TType.STRUCT, len(structs)) + b"".join(structs))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _texts(texts: Iterable[str]) -> bytes:
    return b"".join(map(_text, texts))


def _list(texts: Sequence[str]) -> bytes:
    return _LIST.pack(TType.STRING, len(texts)) + _texts(texts)


def _map(texts: Mapping[str, str]) -> bytes:
    begins = _MAP.pack(TType.STRING, TType.STRING, len(texts))
    return begins + b"".join(_text(key) + _text(value) for key, value in texts.items())
