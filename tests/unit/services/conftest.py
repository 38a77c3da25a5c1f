"""The tables that the JVM Hudi wrote, as the tests of the table layer have them."""

from tests.unit.table.conftest import jvm_tables

__all__ = ["jvm_tables"]
