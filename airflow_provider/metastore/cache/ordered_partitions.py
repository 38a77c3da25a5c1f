"""The partitions of a table in memory, in order, and found by their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from airflow_provider.metastore.model import (
    ListedValues,
    PartitionChoice,
    PartitionInfo,
    PartitionValues,
    is_plain,
    partition_order,
)


class OrderedPartitions:
    """The partitions of a table at one moment. They never change, so threads may share them.

    :ivar all: all partitions, in the order of their names.
    :param partitions: the partitions, in any order.
    """

    def __init__(self, partitions: Iterable[PartitionInfo]) -> None:
        self.all = sorted(partitions, key=partition_order)
        # By the position of a partition key: where the partitions with a value there are in ``all``.
        self._with_value: dict[int, dict[str | None, list[int]]] = {}

    def chosen(self, choice: PartitionChoice) -> list[PartitionInfo]:
        """The partitions of a choice, in order.

        If the choice names values, the cost depends on the number of partitions with these values.
        """
        places = self._places(choice)
        found: Iterable[PartitionInfo] = self.all if places is None else [self.all[at] for at in places]
        return list(found) if choice.keep is None else [one for one in found if choice.keep(one.values)]

    @cached_property
    def values(self) -> ListedValues:
        """The values of all partitions, in the order of their names."""
        return ListedValues(one.values for one in self.all)

    def _places(self, choice: PartitionChoice) -> Sequence[int] | None:
        """Where the chosen partitions are in ``all``, and maybe others; None for anywhere."""
        if choice.exact is not None:
            places = self._place
            return sorted({places[values] for values in choice.exact if values in places})
        if not choice.plain:
            return None
        found = (self._places_with(position, values) for position, values in choice.plain.items())
        return sorted({*min(found, key=len), *self._not_plain})

    def _places_with(self, position: int, values: Iterable[str | None]) -> list[int]:
        if position not in self._with_value:
            places = defaultdict(list)
            for at, one in enumerate(self.all):
                places[one.values[position]].append(at)
            self._with_value[position] = dict(places)
        known = self._with_value[position]
        return [at for value in values for at in known.get(value, ())]

    @cached_property
    def _place(self) -> dict[PartitionValues, int]:
        return {one.values: at for at, one in enumerate(self.all)}

    @cached_property
    def _not_plain(self) -> list[int]:
        """A number in such a partition has another text than the choice."""
        return [at for at, one in enumerate(self.all) if not all(map(is_plain, one.values))]
