"""What Airflow reads at its start (entry point ``airflow.plugins``), in workers and schedulers, too.

So it imports nothing that only the API server needs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

URL_PREFIX = "/table-services"
"""Under which the page's own routes are, below Airflow's base URL."""

STATIC = Path(__file__).parent / "static"


@cache
def static_files() -> dict[str, Path]:
    """The page's files, by name."""
    return {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in (".js", ".css", ".svg")}


@cache
def static_version() -> str:
    """Changes when one of the page's files does, so that browsers may keep them for ever."""
    digest = hashlib.sha256()
    for path in static_files().values():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class _Answering:
    """The page's application, made when the first request comes."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        application = await asyncio.to_thread(_application)
        await application(scope, receive, send)


@cache
def _application() -> Any:
    from airflow_provider.plugins.app import create_app

    return create_app()


class TableServicesPlugin(AirflowPlugin):
    """What is told of tables, metastores and tasks, as JSON."""

    name = "table_services"
    fastapi_apps = [{"app": _Answering(), "url_prefix": URL_PREFIX, "name": "Table Services"}]
