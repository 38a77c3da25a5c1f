"""Which files are the engine's: all of the package that the provider's own pyproject.toml does not take."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Engine(BuildHookInterface):
    """Adds the engine's files to the wheel, and to the sdist from which a wheel can be built as well."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling. An editable install finds the files where they are."""
        if version == "editable":
            return
        here = Path(self.root)
        checkout = here.parents[1]
        is_sdist = (here / "airflow_provider").is_dir()
        package = here / "airflow_provider" if is_sdist else checkout / "airflow_provider"
        face = [] if is_sdist else _face(checkout)
        for path in sorted(package.rglob("*")):
            name = path.relative_to(package.parent)
            is_source = path.is_file() and "__pycache__" not in name.parts
            if is_source and not any(each in (name, *name.parents) for each in face):
                build_data["force_include"][str(path)] = str(name)


def _face(checkout: Path) -> list[Path]:
    described = tomllib.loads((checkout / "pyproject.toml").read_text())
    return [Path(each) for each in described["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]]
