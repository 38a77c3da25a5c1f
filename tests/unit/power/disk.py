"""A disk that loses unforced writes, as POSIX literally allows.

A file's content is on the disk after the file's ``fsync``, a name after the ``fsync`` of its folder. Each
other piece may survive a power failure or not, independent of the others: a name without its content (the
file is then empty, cut off, of zeros, or has its earlier content), a deletion without an earlier deletion, a
file whose folder has no name.

The calls go to a real folder; beside it the disk records the forced state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from typing import Any, Protocol
from unittest.mock import patch


class PowerCut(BaseException):
    """Raised at the call at which the power fails, and at every later call."""


class Luck(Protocol):
    """Decides which unforced pieces survive."""

    def keeps(self, path: str) -> bool:
        """Whether the creation, or deletion, of a name survives.

        :param path: relative to the disk's folder.
        """

    def content(self, now: bytes, forced: bytes) -> bytes:
        """The content of a file after the power failure.

        :param now: the content that was written last.
        :param forced: the content that was forced last.
        """


class Drawn(Luck):
    """Draws for each piece whether it survives.

    :param random: the source of the draws.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._share = random.choice((0.0, 0.2, 0.5, 0.8, 1.0))

    def keeps(self, path: str) -> bool:
        return self._random.random() < self._share

    def content(self, now: bytes, forced: bytes) -> bytes:
        return self._random.choice((now, forced, b"", now[: len(now) // 2], bytes(len(now))))


class Only(Luck):
    """Only names with certain parts survive.

    :param parts: a name survives if it contains one of them; without parts no name survives.
    :param content: whether files have their last content; otherwise they are empty.
    """

    def __init__(self, *parts: str, content: bool = False) -> None:
        self._parts = parts
        self._content = content

    def keeps(self, path: str) -> bool:
        return any(part in path for part in self._parts)

    def content(self, now: bytes, forced: bytes) -> bytes:
        return now if self._content else b""


@dataclass(eq=False)
class File:
    """A file, with any number of names.

    :ivar forced: its content when it was last forced; None if it never was.
    :ivar last: its content when its last name was deleted.
    """

    forced: bytes | None = None
    last: bytes | None = None


@dataclass(eq=False)
class Folder:
    """A folder.

    :ivar now: its present names.
    :ivar forced: its names on the disk.
    :ivar changes: the later changes of its names, in order.
    """

    now: dict[str, File | Folder] = field(default_factory=dict)
    forced: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        self.changes.append(names)
        _apply(self.now, names)

    def force(self) -> None:
        self.forced, self.changes = dict(self.now), []


def _apply(found: dict[str, File | Folder], names: dict[str, File | Folder | None]) -> None:
    for name, node in names.items():
        found.pop(name, None)
        if node is not None:
            found[name] = node


class ForgetfulDisk:
    """The disk under a folder; everything that the folder has at the beginning is on the disk.

    :param root: the folder.
    :ivar steps: the number of calls so far that change or force something.
    :ivar before_step: called before each such call, with its name and path.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.steps = 0
        self.is_cut = False
        self.before_step: Callable[[str, str], None] = lambda _call, _path: None
        self._cut_at: int | None = None
        self._lock = RLock()
        self._top = self._adopted(root, {})

    def _adopted(self, path: Path, known: dict[int, File]) -> Folder:
        folder = Folder()
        for each in path.iterdir():
            if each.is_dir():
                folder.now[each.name] = self._adopted(each, known)
            else:
                folder.now[each.name] = known.setdefault(each.stat().st_ino, File(each.read_bytes()))
        folder.force()
        return folder

    @contextmanager
    def running(self, cut_after: int | None = None) -> Iterator[None]:
        """A context in which the machine runs.

        :param cut_after: the number of steps after which the power fails; never when None.
        """
        self._cut_at = None if cut_after is None else self.steps + cut_after
        calls = {name: getattr(self, f"_{name}") for name in _CALLS}
        with patch.multiple(os, **calls):
            yield

    def cut(self) -> None:
        """Let the power fail."""
        self.is_cut = True

    def come_back(self, luck: Luck) -> None:
        """Restore the power, and the surviving files.

        :param luck: decides which unforced pieces survive.
        """
        top = self._survivors(self._top, "", luck, {})
        shutil.rmtree(self.root)
        os.mkdir(self.root)  # noqa: PTH102
        _build(top, Path(self.root), {})
        self._top = self._adopted(Path(self.root), {})
        self.is_cut = False

    def _survivors(
        self, folder: Folder, path: str, luck: Luck, contents: dict[File, bytes]
    ) -> dict[str, Any]:
        names = dict(folder.forced)
        for change in folder.changes:
            if luck.keeps(f"{path}{next(reversed(change))}"):
                _apply(names, change)
        found: dict[str, Any] = {}
        for name, node in names.items():
            if isinstance(node, Folder):
                found[name] = self._survivors(node, f"{path}{name}/", luck, contents)
                continue
            if node not in contents:
                now = self._content_now(node)
                contents[node] = now if node.forced == now else luck.content(now, node.forced or b"")
            found[name] = (node, contents[node])
        return found

    def _content_now(self, node: File) -> bytes:
        if node.last is not None:
            return node.last
        path = self._path_of(node, self._top, self.root)
        return Path(path).read_bytes() if path else b""

    def _path_of(self, node: File, folder: Folder, path: str) -> str | None:
        for name, each in folder.now.items():
            if each is node:
                return f"{path}/{name}"
            if isinstance(each, Folder) and (found := self._path_of(node, each, f"{path}/{name}")):
                return found
        return None

    # --- the calls ------------------------------------------------------------------------

    def _step(self, call: str, path: str) -> None:
        if not self.is_cut:
            self.before_step(call, path.removeprefix(f"{self.root}/"))
        if self.is_cut or (self._cut_at is not None and self.steps >= self._cut_at):
            self.is_cut = True
            raise PowerCut(path)
        self.steps += 1

    def _is_here(self, path: Any) -> bool:
        return isinstance(path, str) and (path == self.root or path.startswith(f"{self.root}/"))

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder = self._top
        *above, name = path.removeprefix(f"{self.root}/").split("/")
        for each in above:
            inner = folder.now.get(each)
            if not isinstance(inner, Folder):
                raise FileNotFoundError(path)
            folder = inner
        return folder, name

    def _node(self, path: str) -> File | Folder | None:
        if path == self.root:
            return self._top
        folder, name = self._parent(path)
        return folder.now.get(name)

    def _open(self, path: Any, flags: int, *others: Any, **named: Any) -> int:
        if not self._is_here(path) or not flags & os.O_CREAT:
            return _CALLS["open"](path, flags, *others, **named)
        self._step("open", path)
        with self._lock:
            descriptor: int = _CALLS["open"](path, flags, *others, **named)
            folder, name = self._parent(path)
            if name not in folder.now:
                folder.change({name: File()})
            return descriptor

    def _mkdir(self, path: Any, *others: Any, **named: Any) -> None:
        if not self._is_here(path):
            _CALLS["mkdir"](path, *others, **named)
            return
        self._step("mkdir", path)
        with self._lock:
            _CALLS["mkdir"](path, *others, **named)
            folder, name = self._parent(path)
            folder.change({name: Folder()})

    def _link(self, source: Any, target: Any, **named: Any) -> None:
        if not self._is_here(target):
            _CALLS["link"](source, target, **named)
            return
        self._step("link", target)
        with self._lock:
            _CALLS["link"](source, target, **named)
            folder, name = self._parent(target)
            folder.change({name: self._node(source)})

    def _unlink(self, path: Any, **named: Any) -> None:
        if not self._is_here(path):
            _CALLS["unlink"](path, **named)
            return
        self._step("unlink", path)
        with self._lock:
            self._going(path)
            _CALLS["unlink"](path, **named)
            folder, name = self._parent(path)
            folder.change({name: None})

    def _replace(self, source: Any, target: Any, **named: Any) -> None:
        if not self._is_here(target):
            _CALLS["replace"](source, target, **named)
            return
        self._step("replace", target)
        with self._lock:
            self._going(target)
            _CALLS["replace"](source, target, **named)
            (folder, old), (_, new) = self._parent(source), self._parent(target)
            assert folder is self._parent(target)[0], "one step in one folder"
            folder.change({old: None, new: folder.now[old]})

    def _going(self, path: str) -> None:
        node = self._node(path)
        if isinstance(node, File) and os.stat(path).st_nlink == 1:  # noqa: PTH116
            node.last = Path(path).read_bytes()

    def _fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        if not self._is_here(path):
            return
        self._step("fsync", path)
        with self._lock:
            node = None if path.endswith(" (deleted)") else self._node(path)
            if isinstance(node, Folder):
                node.force()
            elif node is not None:
                node.forced = Path(path).read_bytes()

    _fdatasync = _fsync


_CALLS: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in ("open", "mkdir", "link", "unlink", "replace", "fsync", "fdatasync")
}


def _build(found: dict[str, Any], path: Path, made: dict[File, Path]) -> None:
    for name, each in found.items():
        target = path / name
        if isinstance(each, dict):
            target.mkdir()
            _build(each, target, made)
            continue
        node, content = each
        if node in made:
            target.hardlink_to(made[node])
        else:
            target.write_bytes(content)
            made[node] = target
