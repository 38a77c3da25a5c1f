"""Running uv: building, and environments of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def uv(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run uv in the checkout; return its output."""
    # `make` brings its own uv where there is none.
    program = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    # Of all that is installed here little is ever imported.
    environment = os.environ | {"UV_COMPILE_BYTECODE": "0"}
    done = subprocess.run(
        [program, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
