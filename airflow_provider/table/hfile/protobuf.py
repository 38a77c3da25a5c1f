"""The two Protobuf messages of an HFile: its trailer, and the pairs of its file info.

They consist of unsigned numbers and byte strings only. Declarations for a Protobuf library would be longer
than this module, and the engine depends on no such library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@lru_cache(maxsize=1024)  # a file has the same few numbers again and again
def encode_varint(value: int) -> bytes:
    """A number in Protobuf's variable length; a negative one as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it.

    :raises ValueError: when the number is cut off or longer than ten bytes.
    """
    if position < len(data) and data[position] < 0x80:  # most numbers are small
        return data[position], position + 1
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a variable-length number before byte {position} has no end")


def encode_message(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """A message of these fields, each by its number, in their order."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += encode_varint(number << 3 | _VARINT) + encode_varint(value)
        else:
            out += encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value
    return bytes(out)


def decode_message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, each by its number, in their order.

    :raises ValueError: when the bytes are not a message.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = decode_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = decode_varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = decode_varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field {number} is of unknown kind {kind}")
        if position + length > end:
            raise ValueError(f"field {number} is cut off at byte {end}")
        yield number, data[position : position + length]
        position += length


def encode_delimited(message: bytes) -> bytes:
    """A message with its length before it."""
    return encode_varint(len(message)) + message


def decode_delimited(data: bytes, position: int) -> bytes:
    """The message at a position, which has its length before it.

    :raises ValueError: when the message is cut off.
    """
    length, begin = decode_varint(data, position)
    if begin + length > len(data):
        raise ValueError(f"a message of {length} bytes is cut off at byte {len(data)}")
    return data[begin : begin + length]
