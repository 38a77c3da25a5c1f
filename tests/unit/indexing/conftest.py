"""The tables that the JVM Hudi wrote, also for what is beside the data."""

from tests.unit.table.conftest import jvm_tables

__all__ = ["jvm_tables"]
