"""Structs, enums and services of ``hive_metastore.thrift`` as Python classes."""

from __future__ import annotations

from importlib import resources
from io import StringIO
from typing import Any

from thriftpy2.parser import load_fp

__all__ = ["hive"]


def _load() -> Any:
    # By resources: a Spark cluster has this package in a zip file.
    source = resources.files(__package__).joinpath("hive_metastore.thrift")
    with StringIO(source.read_text(encoding="utf-8")) as definition:
        return load_fp(definition, module_name=f"{__package__}.hive_metastore_thrift")


hive = _load()
"""The module that the definition makes: ``hive.LockRequest``, ``hive.ThriftHiveMetastore`` ..."""
