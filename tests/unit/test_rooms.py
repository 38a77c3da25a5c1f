"""The structure of the code: a folder is a room of few modules, others use only its exported names.

A public class has a name of its own.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import airflow_provider

HOUSE = Path(airflow_provider.__file__).parent
ROOMS = sorted(path.parent for path in HOUSE.rglob("__init__.py") if path.parent != HOUSE)
INNER_ROOMS = [
    room for room in ROOMS if room.parent != HOUSE and "import" in (room / "__init__.py").read_text()
]
MODULES = sorted(HOUSE.rglob("*.py"))
MOST_MODULES = 12
TESTS = Path(__file__).parents[1]
NOT_COUNTED = ("__init__.py", "conftest.py")


def dotted(path: Path) -> str:
    parts = path.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported_at_once(module: Path) -> tuple[str, ...]:
    """The modules that a module imports at its own import; imports inside functions do not count."""
    body = ast.parse(module.read_text()).body
    return tuple(node.module for node in body if isinstance(node, ast.ImportFrom) and node.module)


@pytest.mark.parametrize("room", ROOMS, ids=dotted)
def test_a_room_says_what_lives_in_it_and_is_seen_at_once(room: Path) -> None:
    assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), (
        f"{dotted(room)} has no docstring"
    )
    modules = [path.name for path in room.glob("*.py") if path.name != "__init__.py"]
    # Migrations are steps, and each release may add one.
    assert len(modules) <= MOST_MODULES or room.name == "versions", f"{dotted(room)} needs walls: {modules}"


def test_the_rooms_of_tests_are_seen_at_once_too() -> None:
    rooms = {path.parent for path in TESTS.rglob("*.py")}
    counts = {
        str(room.relative_to(TESTS)): len(
            [path for path in room.glob("*.py") if path.name not in NOT_COUNTED]
        )
        for room in rooms
    }
    assert {room: count for room, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("room", INNER_ROOMS, ids=dotted)
def test_a_room_is_entered_by_its_face(room: Path) -> None:
    inside = dotted(room)
    deep = [
        f"{dotted(module)} imports {name}"
        for module in MODULES
        if room not in module.parents
        for name in imported_at_once(module)
        if name.startswith(f"{inside}.")
    ]
    assert deep == []


def test_one_name_means_one_class() -> None:
    modules_of: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_of.setdefault(node.name, []).append(dotted(module))
    assert {name: modules for name, modules in modules_of.items() if len(modules) > 1} == {}


def test_the_rooms_are_found() -> None:
    """Without any rooms the tests above would pass."""
    assert {dotted(room) for room in INNER_ROOMS} >= {
        "airflow_provider.table.timeline",
        "airflow_provider.concurrency.commit",
        "airflow_provider.metastore.thrift.protocol",
    }
