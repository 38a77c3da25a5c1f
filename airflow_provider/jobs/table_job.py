"""The base of all jobs on a table, and their JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.hudi_table import HudiTable

SPARK, ARROW = "spark", "arrow"
CONNECT_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class TableJob:
    """A job on one table.

    :param location: absolute path or URL of the table.
    :param storage_options: keyword arguments of the table's fsspec file system; executors need them too.
    :param lock: configuration for :func:`~airflow_provider.locks.open_lock`; by the table's own options when
        empty.
    :param table_name: the table's name for people; the one in its properties when None.
    :param operation_key: equal for all tries of one operation, so that a later try finds the commit of an
        earlier try.
    :param operation_since: an instant time at or before the first of these tries, so that only the commit
        log's end has to be read.
    :param job_id: names the file in which the job leaves its result.
    :param spark_conf: configuration of a session that the job opens for itself.
    :param connect_timeout: seconds within which a Spark Connect server has to be reached.
    :param engine: the engine that runs the job: :data:`SPARK`, or :data:`ARROW`, which is pyarrow in one
        process, without Spark.
    :cvar kind_of_job: the job's kind, for its JSON and its errors.
    """

    kind_of_job: ClassVar[str]

    location: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    lock: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    table_name: str | None = field(default=None, kw_only=True)
    operation_key: str | None = field(default=None, kw_only=True)
    operation_since: str | None = field(default=None, kw_only=True)
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex, kw_only=True)
    spark_conf: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    connect_timeout: float = field(default=CONNECT_TIMEOUT_SECONDS, kw_only=True)
    engine: str = field(default=SPARK, kw_only=True)

    def open_lock(self, table: HudiTable) -> LockProvider:
        """Open a contender for the table's lock, by :attr:`lock`, or by the table's own options.

        :param table: the job's table.
        :raises InvalidConnectionError: see :func:`~airflow_provider.locks.open_lock`.
        """
        return open_lock(self.lock or table.hudi_options.lock, table.storage)

    def to_json(self) -> str:
        """The job as text. It contains the storage options, which may be secrets: limit who may read it."""
        return json.dumps({"job": self.kind_of_job, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read text from :meth:`to_json`.

        :raises InvalidInputError: when the text is no such job, or the job is invalid.
        """
        try:
            described = json.loads(text)
            if described.pop("job") != cls.kind_of_job:
                raise ValueError("it describes another job")  # noqa: TRY301 - the handler below reports it
            job: Self = read_dataclass(cls, described)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InvalidInputError(
                f"not the description of a job of kind {cls.kind_of_job!r} ({error}): {text[:200]!r}"
            ) from error
        return job

    @classmethod
    def of(cls, location: str, **settings: Any) -> Self:
        """Make a job from single settings by their names, whichever part they belong to.

        ::

            IngestJob.of("/srv/lake/flights", operation="insert", on_conflict="rebase")

        :param location: absolute path or URL of the table.
        :param settings: fields of the job, or of a part of it, such as
            :class:`~airflow_provider.concurrency.WriteSettings`.
        :raises InvalidInputError: when there is no such setting, or one is invalid.
        """
        job: Self = _by_setting(cls, {"location": location, **settings})
        return job


@cache
def _parts(cls: Any) -> dict[str, Any]:
    """The type of each field; for an optional field the type of its value."""
    hints = get_type_hints(cls)
    found = {}
    for each in fields(cls):
        hint = hints[each.name]
        if get_origin(hint) in (Union, UnionType):
            hint = next(one for one in get_args(hint) if one is not NoneType)
        found[each.name] = hint
    return found


def read_dataclass(cls: Any, described: Mapping[str, Any]) -> Any:
    """Make a dataclass from the dict that :func:`dataclasses.asdict` made of it, also after JSON.

    :param cls: the dataclass; its fields may be dataclasses, or None.
    :param described: the values of its fields, by their names.
    :raises ValueError: when there is no such field.
    """
    parts = _parts(cls)
    if unknown := sorted(set(described) - set(parts)):
        raise ValueError(f"there is no field {unknown[0]!r}; known: {', '.join(sorted(parts))}")
    return cls(**{name: _value(parts[name], value) for name, value in described.items()})


def _value(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(value, Mapping):
        return read_dataclass(hint, value)
    return tuple(value) if get_origin(hint) is tuple and isinstance(value, list) else value


def _by_setting(cls: Any, settings: Mapping[str, Any]) -> Any:
    own, inside = _places(cls, frozenset(settings))
    values = {name: settings[name] for name in own}
    for name, hint, names in inside:
        values[name] = _by_setting(hint, {each: settings[each] for each in names})
    return cls(**values)


@cache
def _places(
    cls: Any, settings: frozenset[str]
) -> tuple[frozenset[str], Sequence[tuple[str, Any, frozenset[str]]]]:
    """Divides settings into fields of the job, and settings of a field, with that field's type."""
    own = _parts(cls).keys() & settings
    left, inside = settings - own, []
    for name, (hint, names) in _inner_parts(cls).items():
        if name not in own and (here := names & left):
            inside.append((name, hint, here))
            left -= here
    if left:
        raise InvalidInputError(
            f"there is no setting {min(left)!r}; known: {', '.join(sorted(_settings_of(cls)))}"
        )
    return frozenset(own), inside


@cache
def _inner_parts(cls: Any) -> dict[str, tuple[Any, frozenset[str]]]:
    """The fields that have fields of their own: each with its type, and its settings."""
    inner: dict[str, Any] = {name: hint for name, hint in _parts(cls).items() if is_dataclass(hint)}
    return {name: (hint, _settings_of(hint)) for name, hint in inner.items()}


@cache
def _settings_of(cls: Any) -> frozenset[str]:
    return frozenset(_parts(cls)).union(*(names for _, names in _inner_parts(cls).values()))
