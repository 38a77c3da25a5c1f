"""Options that users give: this module parses, checks and combines them, and turns them into arguments."""

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
from airflow_provider.table.hudi_options.registry import BY_ANY_NAME, CONCURRENCY, OPTIONS
from airflow_provider.table.properties import CONCURRENCY_MODE, NON_BLOCKING

log = logging.getLogger(__name__)

_SIMILAR, _MISTYPED = 0.6, 0.93  # a name with one letter missing is above the second; other names are below

_PROVIDER = f"{LOCK}provider"
_COLUMNS = (
    f"{METADATA}index.column.stats.column.list",
    "hoodie.clustering.plan.strategy.sort.columns",
)


@dataclass(frozen=True)
class HudiOptions:
    """Hudi's options with typed values.

    :param values: by the option's name in Hudi 1.1; durations in seconds, sizes in bytes, names as this
        package has them.
    """

    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> HudiOptions:
        """Read options as people write them.

        :param given: texts, numbers, booleans or lists of names, by Hudi's names, also older ones. An option
            whose value is None, as a template may render it, is left out.
        :raises UnknownOperationError: when an option is not known; it names the nearest known one.
        :raises InvalidInputError: when an option cannot have its value, or when two names of one option
            have different values. No message shows an unknown option's value or a server's address.
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
        """The options among a table's properties.

        A property that is nearly an option has no effect. A warning names it, because it may be mistyped.

        :param properties: the content of ``hoodie.properties``.
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
        """The names in Hudi 1.1 of options.

        :param given: Hudi's names, also older ones.
        :raises UnknownOperationError: see :meth:`parse`.
        """
        return {_option(name).key for name in given}

    def to_properties(self) -> dict[str, str]:
        """Hudi's texts of the options, by their names in Hudi 1.1."""
        return {key: OPTIONS[key].kind.write(value) for key, value in self.values.items()}

    def with_concurrency(self, concurrency: str | None) -> HudiOptions:
        """These options with the concurrency of an argument.

        :param concurrency: ``optimistic`` or ``non_blocking``; None leaves it to the options.
        :raises InvalidInputError: when it is neither, or the options have another one.
        """
        if concurrency is None:
            return self
        if concurrency not in CONCURRENCY:
            known = " or ".join(map(repr, CONCURRENCY))
            raise InvalidInputError(
                f"concurrency must be {known}, not {concurrency!r}", argument="concurrency"
            )
        if self.values.get(CONCURRENCY_MODE, CONCURRENCY[concurrency]) != CONCURRENCY[concurrency]:
            raise InvalidInputError(
                f"argument concurrency is {concurrency!r}, and hudi_options say "
                f"{CONCURRENCY_MODE}={self.values[CONCURRENCY_MODE]}; leave one out",
                argument="concurrency",
            )
        return HudiOptions({**self.values, CONCURRENCY_MODE: CONCURRENCY[concurrency]})

    def check(self, *, with_defaults: bool = False) -> None:
        """Make sure that the options do not contradict each other.

        :param with_defaults: whether the defaults of other options count.
        :raises InvalidInputError: when two options do; the error names them and the remedy.
        """
        for told in contradictions(self.values, with_defaults=with_defaults):
            raise InvalidInputError(told)

    def check_columns(self, columns: Iterable[str]) -> None:
        """Make sure that the table has the columns that options name.

        :param columns: names of the table's columns.
        :raises MissingColumnError: when the table lacks one.
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

        Options that belong together come from one place. If these options have one about what a clean keeps,
        all such options come from here. If they name another lock provider, the lower options of a provider
        do not apply.

        :param lower: the other options, such as a table's.
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
        """The arguments that have the effect of the options.

        :param topics: the operator's subjects.
        """
        found: dict[str, Any] = {}
        for key, value in self.values.items():
            if OPTIONS[key].topic in topics:
                found |= OPTIONS[key].arguments(value)
        return found

    @property
    def lock(self) -> dict[str, Any]:
        """The part of the configuration for :func:`airflow_provider.locks.open_lock` that the options
        give."""
        return lock_config(self.values)

    @cached_property
    def index(self) -> IndexOptions:
        """The options of the metadata table and its indexes, with Hudi's defaults."""
        return IndexOptions.of(self.values)


@dataclass(frozen=True)
class EffectiveOptions:
    """The options of one task: its own, completed by those of its table.

    :param own: the task's options.
    :param table: the table's options.
    :raises InvalidInputError: when options contradict each other.
    """

    own: HudiOptions
    table: HudiOptions

    def __post_init__(self) -> None:
        self.options.check()
        own, of_table = (each.values.get(CONCURRENCY_MODE) == NON_BLOCKING for each in (self.own, self.table))
        if CONCURRENCY_MODE in self.own.values and own != of_table:
            raise InvalidInputError(
                f"{CONCURRENCY_MODE}={self.own.values[CONCURRENCY_MODE]} is said by a task: whether writers "
                "block each other is a matter of the table; set it among the table's options",
                option=CONCURRENCY_MODE,
            )

    @cached_property
    def options(self) -> HudiOptions:
        """The task's options, completed by the table's."""
        return self.own.over(self.table)

    def arguments(self, *topics: Topic, **given: Any) -> dict[str, Any]:
        """The effective arguments of an operator.

        :param topics: the operator's subjects.
        :param given: the operator's own arguments, None for one that was not given. They override the table's
            options.
        :return: the arguments that have a value.
        :raises InvalidInputError: when an argument differs from one of the task's own options.
        """
        explicit = {name: value for name, value in given.items() if value is not None}
        own = self.own.arguments(*topics)
        for name, value in explicit.items():
            if name in own and own[name] != value:
                keys = [
                    key
                    for key, option_value in self.own.values.items()
                    if OPTIONS[key].topic in topics and name in OPTIONS[key].arguments(option_value)
                ]
                raise InvalidInputError(
                    f"argument {name} is {value!r}, and hudi_options say {own[name]!r} "
                    f"({' and '.join(keys)}); leave one out",
                    argument=name,
                )
        found = {name: value for name, value in self.options.arguments(*topics).items() if name in given}
        if "policy" in explicit and explicit["policy"] != found.get("policy"):
            found.pop("retained", None)  # its unit depends on the policy
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
