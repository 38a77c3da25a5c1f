"""The user in whose name a process opens transactions and locks."""

from __future__ import annotations

import getpass
import os


def system_user() -> str:
    """The name of the operating system's user that this process runs as."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container's user id without an entry in its passwd file.
        return f"uid {os.getuid()}"
