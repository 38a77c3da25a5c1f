"""Options as users give them: parsed, checked, combined, and turned into arguments."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from airflow_provider.exceptions import InvalidInputError, MissingColumnError, UnknownOperationError
from airflow_provider.table.hudi_options.contradictions import contradictions
from airflow_provider.table.hudi_options.index_options import METADATA, IndexOptions
from airflow_provider.table.hudi_options.lock_options import LOCK, lock_config
from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.hudi_options.registry import BY_ANY_NAME, OPTIONS

log = logging.getLogger(__name__)

_SIMILAR, _MISTYPED = 0.6, 0.93  # names with one letter too few are above the second, others of Hudi's below

_PROVIDER = f"{LOCK}provider"
_COLUMNS = (
    f"{METADATA}index.column.stats.column.list",
    "hoodie.clustering.plan.strategy.sort.columns",
)


@dataclass(frozen=True)
class HudiOptions:
    """Options of Hudi, read and typed.

    :param values: by the option's name in Hudi 1.1; durations in seconds, sizes in bytes, names as they
        are used here.
    """

    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> HudiOptions:
        """Read options as people write them.

        :param given: texts, numbers, booleans or lists of names, by Hudi's names, also older ones; None as
            a value, as a template may give it, is no value.
        :raises UnknownOperationError: when an option is not known; names the nearest one that is.
        :raises InvalidInputError: when a value is not what its option takes, or two names of one option
            have different values. No message shows an unknown option's value, nor where a server is.
        """
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInputError(
                f"hudi_options must map Hudi's names to values, not be a {type(given).__name__}"
            )
        values: dict[str, Any] = {}
        named: dict[str, str] = {}
        for name, value in (given or {}).items():
            if value is None:
                continue
            option = _option(name)
            found = _read(option, name, value)
            if values.setdefault(option.key, found) != found:
                raise InvalidInputError(
                    f"{named[option.key]} and {name} are two names of one option, and have different values; "
                    "leave one out",
                    option=name,
                )
            named[option.key] = name
        return cls(values)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> HudiOptions:
        """What a table's properties say; others than options are passed over.

        One that is nearly an option, as people mistype it, is warned of: it has no effect, and may be another
        Hudi's.

        :param properties: of ``hoodie.properties``.
        :raises InvalidInputError: see :meth:`parse`, and :meth:`check`.
        """
        for name in properties:
            if name not in BY_ANY_NAME and (meant := _nearest(name, _MISTYPED)):
                log.warning("property %s is not known here and has no effect; the nearest is %s", name, meant)
        found = cls.parse({name: value for name, value in properties.items() if name in BY_ANY_NAME})
        found.check()
        return found

    @staticmethod
    def names(given: Iterable[str]) -> set[str]:
        """The names in Hudi 1.1 of options that people name.

        :param given: Hudi's names, also older ones.
        :raises UnknownOperationError: see :meth:`parse`.
        """
        return {_option(name).key for name in given}

    def to_properties(self) -> dict[str, str]:
        """The options as texts, as Hudi writes them, by their names in Hudi 1.1."""
        return {key: OPTIONS[key].kind.write(value) for key, value in self.values.items()}

    def check(self, *, with_defaults: bool = False) -> None:
        """Make sure that the options do not contradict each other.

        :param with_defaults: whether defaults hold beside them.
        :raises InvalidInputError: when they do; says which, and what to do.
        """
        for told in contradictions(self.values, with_defaults=with_defaults):
            raise InvalidInputError(told)

    def check_columns(self, columns: Iterable[str]) -> None:
        """Make sure that the table has the columns that options name.

        :param columns: names of the table's columns.
        :raises MissingColumnError: when one is not there.
        """
        known = list(columns)
        for key in _COLUMNS:
            for column in self.values.get(key, ()):
                if column not in known:
                    raise MissingColumnError(
                        f"{key} names column {column!r}, which is not in the schema; it has: "
                        f"{', '.join(known)}",
                        column=column,
                    )

    def over(self, lower: HudiOptions) -> HudiOptions:
        """These options, completed by others.

        Options that belong together come from one place. If these options have anything about what a clean
        keeps, all such options come from here. If they name another lock provider, the options of the other
        provider do not apply.

        :param lower: the others, such as a table's.
        """
        provider = self.values.get(_PROVIDER)
        says_retention = any(OPTIONS[key].topic is Topic.CLEANING for key in self.values)

        def stays(option: Option) -> bool:
            if option.topic is Topic.CLEANING:
                return not says_retention
            return provider is None or option.provider in ("", provider)

        kept = {key: value for key, value in lower.values.items() if stays(OPTIONS[key])}
        return HudiOptions(kept | dict(self.values))

    def arguments(self, *topics: Topic) -> dict[str, Any]:
        """What the options say, by the names of the operators' arguments.

        :param topics: what the operator is about.
        """
        found: dict[str, Any] = {}
        for key, value in self.values.items():
            if OPTIONS[key].topic in topics:
                found |= OPTIONS[key].arguments(value)
        return found

    @property
    def lock(self) -> dict[str, Any]:
        """What :func:`airflow_provider.locks.open_lock` takes, as far as the options say it."""
        return lock_config(self.values)

    @property
    def index(self) -> IndexOptions:
        """What they say of the metadata table and its indexes, with Hudi's defaults."""
        return IndexOptions.of(self.values)


@dataclass(frozen=True)
class EffectiveOptions:
    """The options of one task: its own, completed by those of its table.

    :param own: the task's options.
    :param table: the table's options.
    :raises InvalidInputError: when they contradict each other.
    """

    own: HudiOptions
    table: HudiOptions

    def __post_init__(self) -> None:
        self.options.check()

    @cached_property
    def options(self) -> HudiOptions:
        """The task's over the table's."""
        return self.own.over(self.table)

    def arguments(self, *topics: Topic, **given: Any) -> dict[str, Any]:
        """What holds, by the names of the operator's arguments.

        :param topics: what the operator is about.
        :param given: the operator's own arguments, None for one that was not given. They override the table's
            options.
        :return: the arguments that have a value.
        :raises InvalidInputError: when an argument and one of the task's own options say different things.
        """
        explicit = {name: value for name, value in given.items() if value is not None}
        own = self.own.arguments(*topics)
        for name, value in explicit.items():
            if name in own and own[name] != value:
                keys = [
                    key
                    for key, said in self.own.values.items()
                    if OPTIONS[key].topic in topics and name in OPTIONS[key].arguments(said)
                ]
                raise InvalidInputError(
                    f"argument {name} is {value!r}, and hudi_options say {own[name]!r} "
                    f"({' and '.join(keys)}); leave one out",
                    argument=name,
                )
        found = {name: value for name, value in self.options.arguments(*topics).items() if name in given}
        if "policy" in explicit and explicit["policy"] != found.get("policy"):
            found.pop("retained", None)  # it counts something else
        return found | explicit


def _option(name: Any) -> Option:
    option = BY_ANY_NAME.get(name)
    if option is not None:
        return option
    near = _nearest(str(name), _SIMILAR)
    hint = f"the nearest that is: {near}" if near else "docs/configuration.md lists those that are"
    raise UnknownOperationError(f"Hudi's option {str(name)!r} is not known here; {hint}", option=str(name))


@cache
def _nearest(name: str, similarity: float) -> str | None:
    return next(iter(difflib.get_close_matches(name, BY_ANY_NAME, n=1, cutoff=similarity)), None)


def _read(option: Option, name: str, value: Any) -> Any:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    try:
        return option.kind.read(text.strip())
    except ValueError:
        shown = "" if option.is_secret else f", not {text!r}"
        # The text of the error repeats the value.
        raise InvalidInputError(f"{name} must be: {option.kind.name}{shown}", option=name) from None
