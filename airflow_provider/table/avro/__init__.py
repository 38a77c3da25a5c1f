"""The Avro schemas of Hudi's own records, one file for each type, with Hudi's names.

The files are unchanged copies of Hudi's. ``avro_schema`` parses one.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import fastavro
from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError

_NAMESPACE = "org.apache.hudi.avro.model"


class _PackagedSchemas(AbstractSchemaRepository):
    """Finds named Avro types in this folder."""

    def load(self, name: str) -> Any:
        source = resources.files(__package__).joinpath(f"{name}.avsc")
        try:
            return json.loads(source.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise SchemaRepositoryError(f"no Avro schema {name}") from error


def avro_schema_text(name: str) -> str:
    """The text of the schema of one of Hudi's records, as files embed it.

    :param name: name of a record whose schema does not refer to another file.
    """
    return json.dumps(_PackagedSchemas().load(f"{_NAMESPACE}.{name}"), separators=(",", ":"))


@cache
def avro_schema(name: str) -> Any:
    """The parsed Avro schema of one of Hudi's records, by the record's name."""
    return fastavro.schema.load_schema(f"{_NAMESPACE}.{name}", repo=_PackagedSchemas())
