"""Which partitions of a table are wanted, so that a database need not tell all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from airflow_provider.metastore.model.objects import PartitionValues

_PLAIN_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class PartitionChoice:
    """Some partitions of a table.

    :param keep: tells by a partition's values whether it is wanted; None when all are.
    :param exact: no partition with other values is wanted; None when that is not known.
    :param plain: by the positions of partition keys, the values that a wanted partition has there if its
        values are all plain, see :func:`is_plain`. Nothing is known of positions that are not there.
    """

    keep: Callable[[PartitionValues], bool] | None = None
    exact: Collection[PartitionValues] | None = None
    plain: Mapping[int, Collection[str | None]] = field(default_factory=dict)

    def keeps(self, values: PartitionValues) -> bool:
        """Whether the partition with these values is wanted."""
        return self.keep is None or self.keep(values)


def is_plain(value: str | None) -> bool:
    """Whether a value that equals a number is that number's one usual text: ``7``, but not ``07`` or ``7.0``.

    A text that is no number is plain, too. So to find the partitions where a number is 7, it is enough to
    look at those with ``7`` and at those that are not plain.
    """
    return value is None or _PLAIN_NUMBER.fullmatch(value) is not None or number_of(value) is None


def plain_text(number: Decimal) -> str | None:
    """The one text of a number that is plain; None when there is none."""
    if not number.is_finite() or number.adjusted() > 40 or number != number.to_integral_value():
        return None
    return str(int(number))


def number_of(value: str | None) -> Decimal | None:
    """A partition's value as a number; None also for a text that slipped into a key of a number type."""
    try:
        number = None if value is None else Decimal(value)
    except InvalidOperation:
        return None
    return None if number is None or number.is_nan() else number
