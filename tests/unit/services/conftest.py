"""The tables that the JVM's Hudi wrote, from the tests of the table layer."""

from tests.unit.table.conftest import jvm_tables

__all__ = ["jvm_tables"]
