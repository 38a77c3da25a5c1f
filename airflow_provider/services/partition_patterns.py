"""The choice of partitions for a table service, by patterns of their paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def matches(partition: str, patterns: Sequence[str]) -> bool:
    """Whether a partition matches one of the patterns.

    :param partition: partition path.
    :param patterns: patterns such as ``dest=S*``; every partition matches when there are none.
    """
    return not patterns or any(fnmatch.fnmatchcase(partition, pattern) for pattern in patterns)
