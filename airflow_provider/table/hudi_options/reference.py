"""The options as a page for people."""

from __future__ import annotations

from airflow_provider.table.hudi_options.option import Option, Topic
from airflow_provider.table.hudi_options.registry import OPTIONS

_HEAD = "| option | value | default | as | meaning here |\n| --- | --- | --- | --- | --- |\n"


def reference() -> str:
    """Tables of all known options, in Markdown."""
    return "\n".join(
        f"### {topic}\n\n{_HEAD}"
        + "".join(_row(option) for option in OPTIONS.values() if option.topic is topic)
        for topic in Topic
    )


def _row(option: Option) -> str:
    names = "<br>".join([f"`{option.key}`", *(f"or `{name}`" for name in option.alternatives)])
    default = "" if option.default is None else f"`{option.kind.write(option.default)}`"
    argument = f"`{option.argument}`" if option.argument else ""
    return f"| {names} | {option.kind.name} | {default} | {argument} | {option.meaning} |\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
