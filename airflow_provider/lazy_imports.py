"""Packages that import each of their names at its first use (PEP 562)."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_imports(package: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that imports its names under ``if TYPE_CHECKING:``.

    A type checker needs that block. At run time the block also tells from which module a name comes, so the
    package lists its names as every other package does. A caller imports only the modules of the names that
    it uses.

    :param package: ``__name__`` of the package.
    :return: a function that raises AttributeError for a name that the block does not import.
    """

    @cache
    def origins() -> dict[str, str]:
        tree = ast.parse(inspect.getsource(sys.modules[package]))
        blocks = [node for node in tree.body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name.startswith("__") or name not in origins():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(origins()[name]), name)

    return load
