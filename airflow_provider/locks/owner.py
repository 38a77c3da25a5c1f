"""Who a process is, in words for people."""

from __future__ import annotations

import os
import socket


def describe_owner() -> str:
    """Host and process id of the caller, for example ``worker-3:4711``."""
    return f"{socket.gethostname()}:{os.getpid()}"
