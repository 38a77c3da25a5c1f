"""The plugin that Airflow loads at its start (entry point ``airflow.plugins``), also in workers and
schedulers.

So this module imports nothing that only the API server needs.
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
"""The prefix of the page's own routes, below Airflow's base URL."""

PAGE_ROUTE = "table-services"
"""The page is at ``/plugin/table-services`` of Airflow's user interface."""

STATIC = Path(__file__).parent / "static"


@cache
def static_files() -> dict[str, Path]:
    """The page's files, by name."""
    return {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in (".js", ".css")}


@cache
def static_version() -> str:
    """A version that changes with the page's files, so that browsers may cache them for ever."""
    digest = hashlib.sha256()
    for path in static_files().values():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class _Answering:
    """The page's application; the first request creates it."""

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


def _file(name: str) -> str:
    # No slash at the beginning: the browser puts Airflow's own prefix there.
    return f"{URL_PREFIX[1:]}/static/{static_version()}/{name}"


class TableServicesPlugin(AirflowPlugin):
    """A page in Airflow's navigation, a tab at each task instance, and the JSON that they show."""

    name = "table_services"
    fastapi_apps = [{"app": _Answering(), "url_prefix": URL_PREFIX, "name": "Table Services"}]
    react_apps = [
        {
            "name": "Tables",
            "bundle_url": _file("page.js"),
            "destination": "nav",
            "url_route": PAGE_ROUTE,
            "nav_top_level": True,
        },
        {
            "name": "Table",
            "bundle_url": _file("task.js"),
            "destination": "task_instance",
            "url_route": f"{PAGE_ROUTE}-task",
        },
    ]
