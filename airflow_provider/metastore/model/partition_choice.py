"""A choice among a table's partitions, so that a reader need not load all of them from the database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from airflow_provider.metastore.model.objects import PartitionValues

_PLAIN_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class PartitionChoice:
    """A choice among the partitions of a table.

    :param keep: decides by a partition's values whether the choice has it; None when it has all partitions.
    :param exact: the only values that a chosen partition can have; None when they are not known.
    :param plain: by the position of a partition key, the values that a chosen partition has there if all its
        values are plain, see :func:`is_plain`. A position that is missing may have any value.
    :param texts: the positions in ``plain`` where the same holds for every chosen partition, because the
        choice compares texts and not numbers.
    """

    keep: Callable[[PartitionValues], bool] | None = None
    exact: Collection[PartitionValues] | None = None
    plain: Mapping[int, Collection[str | None]] = field(default_factory=dict)
    texts: Collection[int] = ()

    def keeps(self, values: PartitionValues) -> bool:
        """Whether the choice has the partition with these values."""
        return self.keep is None or self.keep(values)


def is_plain(value: str | None) -> bool:
    """Whether a value is plain. Of the texts of a number only one is: ``7``, but not ``07`` or ``7.0``.

    A text that is no number is plain, too. So a search for the partitions where a number is 7 looks only at
    those with ``7`` and at those that are not plain.
    """
    return value is None or _PLAIN_NUMBER.fullmatch(value) is not None or number_of(value) is None


def plain_text(number: Decimal) -> str | None:
    """The plain text of a number; None when the number has none."""
    if not number.is_finite() or number.adjusted() > 40 or number != number.to_integral_value():
        return None
    return str(int(number))


def number_of(value: str | None) -> Decimal | None:
    """A partition's value as a number; None also for a text in a key of a number type."""
    try:
        number = None if value is None else Decimal(value)
    except InvalidOperation:
        return None
    return None if number is None or number.is_nan() else number
