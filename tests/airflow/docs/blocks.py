"""The blocks of README and docs, as a reader copies them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block.

    :ivar page: path of the page in the project.
    :ivar line: the number of the block's first line on the page.
    :ivar language: the block's language; empty if the page names none.
    :ivar text: the block's text.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """The block's place, for people."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The command lines of a console block; a line of output has no ``$``."""
        return [found[1].partition(" # ")[0].strip() for found in _COMMAND.finditer(self.text)]

    def here(self, replacements: dict[str, str]) -> Block:
        """The block, with this machine's folders and servers in place of the reader's."""
        text = self.text
        for theirs, ours in replacements.items():
            text = text.replace(theirs, ours)
        return replace(self, text=text)


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in the page's order.

    :param page: of :data:`PAGES`.
    """
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]
