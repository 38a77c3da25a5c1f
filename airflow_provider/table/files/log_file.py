"""Log files: the blocks that writers append to a file slice of a merge-on-read table.

Sources: ``HoodieLogFormatWriter``, ``HoodieLogFileReader``, ``HoodieLogBlock`` and
``BaseHoodieLogRecordReader`` of Apache Hudi. Numbers are big-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from airflow_provider.exceptions import CorruptTableError, UnsupportedTableError
from airflow_provider.table.storage import ByteRange

MAGIC = b"#HUDI#"
CONTENT_VERSION = 3
"""Version of the content of blocks (``HoodieLogBlock.version``); most contents begin with it."""

_FORMAT_VERSION = 1
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_TWO_INTS = struct.Struct(">ii")

_SMALL = 64 * 1024  # a log file up to this size is read in one request; most are
_READ_AT_LEAST = 16 * 1024  # bytes per request for a larger file: enough for a block's header with its schema
_SEARCH = 1024 * 1024

_ROLLBACK = "0"  # the ordinal of HoodieCommandBlockTypeEnum.ROLLBACK_BLOCK

_NAME = re.compile(r"^\.(?P<id>.+)_(?P<instant>\d+)\.log\.(?P<version>\d+)(?:_(?P<token>\d+-\d+-\d+))?$")


class BlockType(IntEnum):
    """The type of a block (``HoodieLogBlockType``)."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The keys of a block's header (``HeaderMetadataType``)."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


_BLOCK_TYPES = frozenset(BlockType)
_HEADER_KEYS: Mapping[int, int] = {int(each): each for each in HeaderKey}


@dataclass(frozen=True)
class LogFileName:
    """The parts of a log file's name.

    :param file_id: id of the file group.
    :param instant: requested time of the instant that wrote it; before table version 8 the instant of the
        base file that it belongs to.
    :param version: number of the log file among those with the same other parts.
    :param write_token: the task attempt that wrote it; empty in old tables.
    """

    file_id: str
    instant: str
    version: int = 1
    write_token: str = "1-0-1"  # noqa: S105

    def __str__(self) -> str:
        token = f"_{self.write_token}" if self.write_token else ""
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}"

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """The parts of a log file's name; None for another file."""
        match = _NAME.match(name)
        if match is None:
            return None
        return cls(match["id"], match["instant"], int(match["version"]), match["token"] or "")


@dataclass(frozen=True)
class LogBlock:
    """One block of a log file.

    :param block_type: the type of its content.
    :param header: the values of its header by key; a key of a later Hudi is its number.
    :param content: its content, which is read on demand.
    :param footer: the values of its footer; Hudi writes none so far.
    """

    block_type: BlockType
    header: Mapping[int, str]
    content: ByteRange
    footer: Mapping[int, str] = field(default_factory=dict)

    @property
    def instant(self) -> str:
        """Requested time of the instant that wrote it; empty for a corrupt block."""
        return self.header.get(HeaderKey.INSTANT_TIME, "")

    @property
    def rolled_back_instant(self) -> str | None:
        """For a rollback command, the instant whose earlier blocks readers ignore; else None."""
        if self.block_type is not BlockType.COMMAND:
            return None
        if self.header.get(HeaderKey.COMMAND_BLOCK_TYPE) != _ROLLBACK:
            return None
        return self.header.get(HeaderKey.TARGET_INSTANT_TIME)

    @property
    def compacted_instants(self) -> tuple[str, ...]:
        """For a block that a log compaction wrote, the instants whose blocks it replaces."""
        text = self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(each for each in text.split(",") if each)

    @property
    def is_partial(self) -> bool:
        """Whether its rows are partial updates, with only the columns of its own schema."""
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    def read(self) -> bytes:
        """The whole content."""
        return self.content.read(0, self.content.size)


def encode_log_block(
    block_type: BlockType,
    content: bytes,
    *,
    instant: str,
    header: Mapping[int, str] | None = None,
) -> bytes:
    """The bytes of a block, to be appended to a log file.

    :param block_type: the type of its content.
    :param content: the content.
    :param instant: requested time of the writing instant.
    :param header: further values of the header.
    """
    body = b"".join(
        (
            _TWO_INTS.pack(_FORMAT_VERSION, block_type),
            _encode_metadata(dict(header or {}) | {HeaderKey.INSTANT_TIME: instant}),
            _LONG.pack(len(content)),
            content,
            _encode_metadata({}),
        )
    )
    size = len(body) + _LONG.size  # without the magic, but with the size that is repeated at the end
    return b"".join((MAGIC, _LONG.pack(size), body, _LONG.pack(size + len(MAGIC))))


def encode_rollback_block(instant: str, rolled_back: str) -> bytes:
    """The command block after which readers ignore the earlier blocks of an instant.

    :param instant: requested time of the rollback.
    :param rolled_back: requested time of the instant that is rolled back.
    """
    header: dict[int, str] = {
        HeaderKey.TARGET_INSTANT_TIME: rolled_back,
        HeaderKey.COMMAND_BLOCK_TYPE: _ROLLBACK,
    }
    return encode_log_block(BlockType.COMMAND, b"", instant=instant, header=header)


def read_log_blocks(content: ByteRange) -> Iterator[LogBlock]:
    """The blocks of a log file, in the order in which they were appended.

    A writer that died may leave an incomplete block. It comes as a block of type ``CORRUPT``, and reading
    goes on at the next block, as in Hudi. A block is complete when the sizes before and behind it are equal,
    whatever follows. (Hudi drops a complete block if a writer died in the first six bytes of the next one.)

    :param content: the file's bytes.
    :raises CorruptTableError: when the file does not begin with a block, or a whole block's parts
        do not fit together.
    :raises UnsupportedTableError: when a block is of a format or type of another version.
    """
    at_least = content.size if content.size <= _SMALL else _READ_AT_LEAST
    content = ByteRange(content.read, content.size, content.name, at_least)
    position = 0
    while content.size - position >= len(MAGIC):
        begin = position + len(MAGIC)
        has_magic = content.read(position, begin) == MAGIC
        if not has_magic and position == 0:
            raise CorruptTableError(f"{content.name} is no log file: it begins with no block")
        end = _end_of_block(content, begin) if has_magic else None
        if end is None:
            # The search goes on at the next byte, because the next block may follow an incomplete magic
            # directly.
            damaged, position = position, _next_magic(content, position + 1)
            yield LogBlock(BlockType.CORRUPT, {}, content.part(damaged, position - damaged))
        else:
            yield _read_block(content, begin + _LONG.size, end - _LONG.size)
            position = end


def valid_log_blocks(
    blocks: Iterable[LogBlock], is_committed: Callable[[str], bool] = lambda _: True
) -> list[LogBlock]:
    """The blocks that readers merge: of committed instants, not rolled back, not corrupt.

    A rollback command concerns only the blocks before it. So the blocks of an instant that was written again
    after its rollback are valid (``BaseHoodieLogRecordReader.scanInternalV1``).

    :param blocks: the blocks of a file slice, in the order of its log files.
    :param is_committed: tells by the requested time whether an instant has completed.
    """
    valid: list[LogBlock] = []
    for block in blocks:
        if block.block_type is BlockType.CORRUPT:
            continue
        rolled_back = block.rolled_back_instant
        if rolled_back is not None:
            # The command of a pending rollback is valid too, because a rollback writes it only once it is
            # final.
            valid = [each for each in valid if each.instant != rolled_back]
        elif block.block_type is not BlockType.COMMAND and is_committed(block.instant):
            valid.append(block)
    return valid


def merge_order(blocks: Sequence[LogBlock]) -> list[LogBlock]:
    """Blocks in the order in which their rows are merged, without those that a log compaction replaces.

    The block of a log compaction takes the place of the newest block that it has read, because blocks of
    later writes may precede it in the file (``BaseHoodieLogRecordReader.scanInternalV2``).

    :param blocks: from :func:`valid_log_blocks`.
    """
    by_instant: dict[str, list[LogBlock]] = {}
    into: dict[str, str] = {}
    for block in blocks:
        by_instant.setdefault(block.instant, []).append(block)
        into.update(dict.fromkeys(block.compacted_instants, block.instant))
    if not into:
        return list(blocks)
    replaces_some = {into[each] for each in by_instant if each in into}
    newest_first: list[list[LogBlock]] = []
    placed = set()
    for instant in reversed(by_instant):
        stands_for_it = instant
        while stands_for_it in into:
            stands_for_it = into[stands_for_it]
        if stands_for_it in placed or (stands_for_it == instant and instant in replaces_some):
            continue
        placed.add(stands_for_it)
        newest_first.append(by_instant.get(stands_for_it, []))
    return [block for of_instant in reversed(newest_first) for block in of_instant]


def _end_of_block(content: ByteRange, begin: int) -> int | None:
    """The end of the block whose magic ends here; None when the block is incomplete."""
    if begin + _LONG.size > content.size:
        return None
    (size,) = _LONG.unpack(content.read(begin, begin + _LONG.size))
    end = begin + _LONG.size + size
    if size < _LONG.size or end > content.size:
        return None
    (repeated,) = _LONG.unpack(content.read(end - _LONG.size, end))
    return end if repeated == size + len(MAGIC) else None


def _next_magic(content: ByteRange, begin: int) -> int:
    for start in range(begin, content.size, _SEARCH):
        end = min(content.size, start + _SEARCH + len(MAGIC) - 1)
        found = content.read(start, end).find(MAGIC)
        if found >= 0:
            return start + found
    return content.size


def _read_block(content: ByteRange, begin: int, end: int) -> LogBlock:
    try:
        version, type_number = _TWO_INTS.unpack(content.read(begin, begin + _TWO_INTS.size))
        if version != _FORMAT_VERSION:
            raise UnsupportedTableError(
                f"log file {content.name} has a block of format version {version}; read is {_FORMAT_VERSION}"
            )
        if type_number not in _BLOCK_TYPES:
            raise UnsupportedTableError(f"log file {content.name} has a block of unknown type {type_number}")
        header, position = _decode_metadata(content, begin + _TWO_INTS.size)
        (size,) = _LONG.unpack(content.read(position, position + _LONG.size))
        body = position + _LONG.size
        footer, position = _decode_metadata(content, body + size)
    except (ValueError, struct.error) as error:
        raise CorruptTableError(f"log file {content.name} has a damaged block: {error}") from error
    if position != end:
        raise CorruptTableError(
            f"log file {content.name} has a block whose parts end at byte {position} instead of {end}"
        )
    return LogBlock(BlockType(type_number), header, content.part(body, size), footer)


def _encode_metadata(metadata: Mapping[int, str]) -> bytes:
    out = bytearray(_INT.pack(len(metadata)))
    for key, value in metadata.items():
        data = value.encode()
        out += _TWO_INTS.pack(key, len(data)) + data
    return bytes(out)


def _decode_metadata(content: ByteRange, position: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack(content.read(position, position + _INT.size))
    position += _INT.size
    found: dict[int, str] = {}
    for _ in range(count):
        key, size = _TWO_INTS.unpack(content.read(position, position + _TWO_INTS.size))
        position += _TWO_INTS.size
        found[_HEADER_KEYS.get(key, key)] = content.read(position, position + size).decode()
        position += size
    return found, position
