"""The page's routes: GET only, and only for users who may see plugins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.responses import FileResponse
from sqlalchemy import select

from airflow_provider.locks.owner import TaskRun
from airflow_provider.metastore.model import is_location, split_table_name
from airflow_provider.plugins.metastores import KnownTable, Metastores
from airflow_provider.plugins.plugin import static_files, static_version
from airflow_provider.plugins.reading import Answer, Readings
from airflow_provider.reports import (
    TableHistory,
    report_held_back,
    report_instant,
    report_locks,
    report_metastore,
    report_table,
    report_task,
    report_timeline,
    report_upkeep,
    report_write_ids,
)

FIRST_LOOK_SECONDS = 0.7
"""The list of tables waits this long for its rows; a row that is read later appears the next time."""

_AIRFLOW = "airflow's own database"

Metastore = Annotated[str, Query(description="Id of a connection of type table_metastore.")]
TableName = Annotated[str, Query(description="database.table, or a location.", min_length=1)]


class Page:
    """The state that routes share: results of earlier reads, and running reads."""

    def __init__(self) -> None:
        self.metastores = Metastores()
        self.readings = Readings()

    async def all_tables(self) -> tuple[list[dict[str, Any]], list[KnownTable]]:
        """The metastores, each with its state, and their tables."""
        ids = await self.readings.read(("metastores",), _AIRFLOW, self.metastores.conn_ids)
        answers = await asyncio.gather(*(self._tables_of(each) for each in ids.value or ()))
        rows = [
            {"metastore": conn_id, **answer.to_dict(), "tables": len(answer.value or ())}
            for conn_id, answer in zip(ids.value or (), answers, strict=True)
        ]
        if ids.error is not None:
            rows.append({"metastore": "connections", **ids.to_dict(), "tables": 0})
        return rows, [table for answer in answers for table in answer.value or ()]

    def _tables_of(self, conn_id: str) -> Any:
        return self.readings.read(
            ("tables", conn_id),
            f"metastore {conn_id}",
            lambda: self.metastores.tables(conn_id),
            wait=FIRST_LOOK_SECONDS,
        )

    async def row(self, known: KnownTable, wait: float) -> dict[str, Any]:
        """A row of the list of tables."""

        def look() -> dict[str, Any]:
            history = self.metastores.history(known)
            return report_table(history, self.metastores.lock_of(known, history.table))

        answer = await self.readings.read(("row", known), known.place, look, wait=wait)
        row = {"metastore": known.metastore, "table": known.name, "location": known.location}
        return row | answer.to_dict() | {"report": answer.value}

    async def part(
        self,
        metastore: str,
        name: str,
        part: str,
        look: Callable[[TableHistory, KnownTable], Any],
        which: object = None,
    ) -> dict[str, Any]:
        """One report about one table.

        :param part: the report's name in the answer.
        :param which: selects one of several such reports.
        """

        def of_table() -> Any:
            known = self.metastores.table(metastore, name)
            return look(self.metastores.history(known), known)

        place = f"table {metastore} {name}"
        answer = await self.readings.read((part, metastore, name, which), place, of_table)
        return {"now": time.time(), **answer.to_dict(), part: answer.value}


def create_app() -> FastAPI:
    """The application that Airflow mounts under the plugin's prefix."""
    app = FastAPI(
        title="Table Services",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    page = Page()

    @app.get("/static/{version}/{name}")
    def static(version: str, name: str) -> FileResponse:
        path = static_files().get(name)
        if path is None:
            raise HTTPException(404, f"the page has no file {name}")
        kept = "private, max-age=31536000, immutable" if version == static_version() else "no-store"
        return FileResponse(path, headers={"Cache-Control": kept})

    @app.get("/api/tables")
    async def tables() -> dict[str, Any]:
        """All tables of all metastores, one row for each."""
        until = time.monotonic() + FIRST_LOOK_SECONDS
        metastores, known = await page.all_tables()
        left = max(0.1, until - time.monotonic())
        rows = await asyncio.gather(*(page.row(each, left) for each in known))
        return {"now": time.time(), "metastores": metastores, "tables": rows}

    @app.get("/api/timeline")
    async def timeline(
        metastore: Metastore, table: TableName, last: Annotated[int, Query(ge=1, le=5_000)] = 1_000
    ) -> dict[str, Any]:
        """The newest instants of a table."""
        return await page.part(
            metastore, table, "timeline", lambda history, _: report_timeline(history, last), last
        )

    @app.get("/api/table")
    async def table(metastore: Metastore, table: TableName) -> dict[str, Any]:
        """A table's row in the list."""

        def look(history: TableHistory, known: KnownTable) -> dict[str, Any]:
            return report_table(history, page.metastores.lock_of(known, history.table))

        return await page.part(metastore, table, "report", look)

    @app.get("/api/upkeep")
    async def upkeep(metastore: Metastore, table: TableName) -> dict[str, Any]:
        """A table's indexes, plans, savepoints, options and write ids."""

        def look(history: TableHistory, known: KnownTable) -> dict[str, Any]:
            report = report_upkeep(history)
            if is_location(known.name):
                return report | {"write_ids": None}
            opened = page.metastores.opened(known.metastore)
            return report | {"write_ids": report_write_ids(opened, *split_table_name(known.name))}

        return await page.part(metastore, table, "upkeep", look)

    @app.get("/api/held-back")
    async def held_back(metastore: Metastore, table: TableName) -> dict[str, Any]:
        """The work that a clean and an archival of a table would do, and who holds the rest back."""
        return await page.part(metastore, table, "held_back", lambda history, _: report_held_back(history))

    @app.get("/api/instant")
    async def instant(
        metastore: Metastore, table: TableName, instant: Annotated[str, Query(pattern=r"^\d{14,17}$")]
    ) -> dict[str, Any]:
        """The full description of one instant."""
        return await page.part(
            metastore, table, "instant", lambda history, _: report_instant(history, instant), instant
        )

    @app.get("/api/log")
    async def log() -> dict[str, Any]:
        """The notification logs of all metastores, and the replications into them."""
        rows, _ = await page.all_tables()
        ids = [each["metastore"] for each in rows if each["metastore"] != "connections"]

        async def report(conn_id: str) -> dict[str, Any]:
            answer: Answer = await page.readings.read(
                ("log", conn_id),
                f"metastore {conn_id}",
                lambda: report_metastore(page.metastores.opened(conn_id)),
            )
            followed = await page.readings.read(
                ("replications", conn_id),
                f"replications into {conn_id}",
                lambda: page.metastores.replications(conn_id, ids),
            )
            row = {"metastore": conn_id, **answer.to_dict(), "log": answer.value}
            return row | {"replications": followed.value or [], "replications_error": followed.error}

        return {"now": time.time(), "metastores": list(await asyncio.gather(*map(report, ids)))}

    @app.get("/api/task", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))])
    async def task(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """The table that a task instance works on, and the instants of its tries."""
        asked = TaskRun(dag_id, task_id, run_id, map_index)
        fields = await page.readings.read(("fields", asked), _AIRFLOW, lambda: _rendered_fields(asked))
        name = (fields.value or {}).get("table")
        if not name:
            return {"now": time.time(), **fields.to_dict(), "state": "ok", "table": None}
        metastore = fields.value.get("metastore_conn_id") or "table_metastore_default"

        def look() -> dict[str, Any]:
            known = page.metastores.table(metastore, name)
            given = {key: fields.value.get(key) for key in ("storage_conn_id", "lock_conn_id")}
            known = KnownTable(metastore, name, known.location, **{k: v for k, v in given.items() if v})
            history = page.metastores.history(known)
            locks = report_locks(page.metastores.lock_of(known, history.table))
            return report_task(history, asked, locks)

        answer = await page.readings.read(("task", asked), f"table {metastore} {name}", look)
        found = {"metastore": metastore, "table": name, "report": answer.value}
        return {"now": time.time(), **answer.to_dict(), **found}

    return app


def _rendered_fields(task: TaskRun) -> dict[str, Any]:
    """The arguments of a task instance's operator, as the worker rendered them; empty before rendering."""
    fields = RenderedTaskInstanceFields
    query = select(fields.rendered_fields).where(
        fields.dag_id == task.dag,
        fields.task_id == task.task,
        fields.run_id == task.run,
        fields.map_index == task.map_index,
    )
    with create_session() as session:
        return session.scalar(query) or {}
