"""A Hudi table on storage: how its files are read and written, and what they mean.

Begin with ``hudi_table``, then ``timeline`` (instants), ``file_groups`` (which files a snapshot shows) and
``reading`` (rows). The formats are Hudi's: a change of a written format needs a source in Hudi's code, and a
test that compares with the JVM's answers or files. This room knows no transactions, locks or commit protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from airflow_provider.table.hudi_table import HudiTable
    from airflow_provider.table.reading import (
        Increment,
        Order,
        increment,
        movable_checkpoint,
        read_optimized,
        snapshot,
    )

__all__ = ["HudiTable", "Increment", "Order", "increment", "movable_checkpoint", "read_optimized", "snapshot"]

# The locks and the command line need the storage or an instant's state, but not the readers of rows.
__getattr__ = lazy_imports(__name__)
