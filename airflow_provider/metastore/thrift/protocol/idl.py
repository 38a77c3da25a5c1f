"""The structs, enums and services of this folder's ``.thrift`` files, one definition, as Python classes."""

from __future__ import annotations

from importlib import resources
from io import StringIO
from typing import Any

from thriftpy2.parser import load_fp

__all__ = ["hive"]

# In this order each part uses only definitions of itself and the parts before it.
_PARTS = (
    "hive_constraints",
    "hive_catalog",
    "hive_partitions",
    "hive_transactions",
    "hive_statistics",
    "hive_further",
    "hive_metastore",
)


def _load() -> Any:
    # By importlib's resources, because a Spark cluster has this package in a zip file.
    folder = resources.files(__package__)
    texts = [folder.joinpath(f"{name}.thrift").read_text(encoding="utf-8") for name in _PARTS]
    with StringIO("\n".join(texts)) as definition:
        return load_fp(definition, module_name=f"{__package__}.hive_metastore_thrift")


hive = _load()
"""The module of the definition's classes: ``hive.LockRequest``, ``hive.ThriftHiveMetastore`` ..."""
