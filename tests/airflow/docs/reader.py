"""A reader who follows one page, block by block, with real tables, a real metastore and a real Airflow."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from airflow.configuration import conf
from airflow.sdk import DAG, Asset, AssetWatcher, Connection, task
from airflow.sdk.definitions._internal.contextmanager import DagContext
from typer.testing import CliRunner

import airflow_provider.hooks
import airflow_provider.operators
import airflow_provider.sensors
from airflow_provider.assets import table_asset
from airflow_provider.cli import app
from airflow_provider.ingestion import ingest_arrow
from airflow_provider.metastore import AnyMetastore
from airflow_provider.operators import CreateTableOperator, IngestOperator
from airflow_provider.table import HudiTable, increment, snapshot
from airflow_provider.table.hudi_options import HudiOptions
from airflow_provider.triggers import NotificationLogEventTrigger
from tests.airflow.docs.blocks import ROOT, Block, blocks

_TYPES = {
    "flight": "bigint",
    "dest": "string",
    "carrier": "string",
    "origin": "string",
    "delay": "double",
    "dep_delay": "double",
    "arr_delay": "double",
    "fare": "decimal(10,2)",
    "at": "timestamp",
    "time_hour": "timestamp",
    "year": "int",
    "month": "int",
}
_SHORT = ("flight", "dest", "delay", "at")
# These pages create their table themselves, with fewer columns.
COLUMNS = {
    "README.md": _SHORT,
    "docs/merge-on-read.md": _SHORT,
    "docs/non-blocking.md": _SHORT,
    "docs/tables.md": ("flight", "dest", "fare", "at"),
}


def needs_spark(page: str) -> bool:
    """Whether a block of the page opens a Spark session, or takes one as given."""
    return any(word in block.text for block in blocks(page) for word in ("local_session", "(spark"))


def rows_of_a_day(columns: tuple[str, ...], month: int = 12) -> pa.Table:
    """A few flights of one day of 2013."""
    count = 6
    at = pa.array([datetime(2013, month, 1, hour) for hour in range(count)], pa.timestamp("us", "UTC"))
    all_columns = {
        "flight": pa.array(range(month * 100, month * 100 + count), pa.int64()),
        "dest": ["IAH", "MIA", "BQN"] * 2,
        "carrier": ["UA", "AA"] * 3,
        "origin": ["JFK", "EWR"] * 3,
        **{
            name: pa.array([float(i * 100) for i in range(count)])
            for name in ("delay", "dep_delay", "arr_delay")
        },
        "fare": pa.array([Decimal(i) for i in range(count)], pa.decimal128(10, 2)),
        "at": at,
        "time_hour": at,
        "year": pa.array([2013] * count, pa.int32()),
        "month": pa.array([month] * count, pa.int32()),
    }
    return pa.table({name: all_columns[name] for name in columns})


class Reader:
    """Runs the blocks of one page.

    :param page: of :data:`~tests.airflow.docs.blocks.PAGES`.
    :param folder: the folder for all files that the page puts under ``/srv`` or on a server.
    :param metastore: the metastore of the default connection.
    :param run_dag: runs a DAG by Airflow.
    :param spark: the Spark session that a page takes as given.
    """

    def __init__(
        self,
        page: str,
        folder: Path,
        metastore: AnyMetastore,
        run_dag: Callable[[DAG], Any],
        spark: Any = None,
    ) -> None:
        self.page = page
        self.folder = folder
        self.metastore = metastore
        self.run_dag = run_dag
        self.columns = COLUMNS.get(page, tuple(_TYPES))
        self.location = str(folder / "srv" / "lake" / "flights")
        self.metastore_url = f"sqlite:///{folder}/metastore.db"
        self.replacements = {
            "sqlite:////srv/metastore.db": self.metastore_url,
            "/srv/": f"{folder}/srv/",
            "s3://copies/": f"{folder}/copies/",
            "user:password@": "",
            "postgresql+psycopg://one/metastore": self.metastore_url,
            "postgresql+psycopg://two/metastore": f"sqlite:///{folder}/two.db",
            "postgresql+psycopg://host/metastore": self.metastore_url,
            "postgresql+psycopg://…": self.metastore_url,
            "--target URL": f"--target sqlite:///{folder}/two.db",
            "--source URL": f"--source {self.metastore_url}",
            # The landing folder has files of this day only.
            'start="2013-01-01", end="2014-01-01"': 'start="2013-12-01", end="2013-12-02"',
            # An hour is long for a test.
            "follow(3600)": "follow(1)",
            "--follow 3600": "--follow 1",
            "follow_for=timedelta(hours=1)": "follow_for=timedelta(seconds=1)",
            "--location ...": f"--location {folder}/srv/lake={folder}/copies/lake",
        }
        self._land()
        if page not in COLUMNS:
            self._create()
        self.names = self._names(spark)

    def follow(self) -> None:
        """Run each block, or check it if it is not a program."""
        for block in blocks(self.page):
            print(f"{block.place} [{block.language}]: {self._one(block.here(self.replacements))}")

    def _one(self, block: Block) -> str:
        if block.language == "python":
            return self._python(block)
        if block.language == "console":
            return self._console(block)
        if block.language == "properties":
            HudiOptions.parse(dict(line.split("=", 1) for line in block.text.splitlines()))
            return "options that are known"
        if block.language == "ini":
            parser = configparser.ConfigParser()
            parser.read_string(block.text)
            for section in parser.sections():
                assert set(parser[section]) <= set(conf.getsection(section) or {}), block.place
            return "settings that Airflow knows"
        assert block.language in ("text", "diff", "json"), f"{block.place}: say what language this is"
        return "is no program"

    # --- Python ---------------------------------------------------------------------------

    def _python(self, block: Block) -> str:
        # As Airflow finds the DAGs of a file, which need no name there.
        DagContext.autoregistered_dags.clear()
        DagContext.current_autoregister_module_name = __name__
        with DAG(
            f"{self.page.replace('/', '_')}_{block.line}", schedule=None, start_date=datetime(2024, 1, 1)
        ) as dag:
            before = self._before(block)
            text = "\n" * (block.line - 1) + self._at_a_commit(block.text)
            exec(compile(text, block.page, "exec"), self.names)
        # The tasks run one after the other, in the order of the page: a waiting task stops a test run of a
        # DAG.
        roots = [each for each in dag.tasks if each in dag.roots]
        if before is not None:
            roots.sort(key=lambda each: each is not before)
        for earlier, later in pairwise(roots):
            earlier >> later
        for each in (dag, *(found for found, _ in DagContext.autoregistered_dags if found is not dag)):
            if each.tasks:
                run = self.run_dag(each)
                assert run.state == "success", f"{block.place}: its run of {each.dag_id} ended as {run.state}"
        self.names |= self._tables()  # this block may have created it, or used its name for a task
        return "run"

    def _at_a_commit(self, text: str) -> str:
        """The text, with the page's moment replaced by one at which this table had a commit."""
        if "as_of=" not in text:
            return text
        newest = self.names["table"].timeline().commits()[-1].completion_time
        return re.sub(r'as_of="[0-9]{17}"', f'as_of="{newest}"', text)

    def _tables(self) -> dict[str, Any]:
        if not Path(self.location).exists():
            return {}
        found = dict.fromkeys(("table", "flights"), HudiTable.open(self.location))
        delays = self.folder / "srv" / "lake" / "delays"
        return {**found, "delays": HudiTable.open(str(delays))} if delays.exists() else found

    def _before(self, block: Block) -> Any:
        """Run the load that a block waits for, and that the page shows elsewhere."""
        if "'ingest')" not in block.text or 'task_id="ingest"' in block.text:
            return None
        return IngestOperator(
            task_id="ingest", table="lake.flights", source=f"{self.folder}/srv/landing/2013-12-01/*.parquet"
        )

    def _names(self, spark: Any) -> dict[str, Any]:
        """The names that the page takes as given: imports that another page shows, and the table."""
        names: dict[str, Any] = {"__name__": __name__, "spark": spark}
        for room in (airflow_provider.operators, airflow_provider.sensors, airflow_provider.hooks):
            names |= {name: getattr(room, name) for name in room.__all__}
        names |= {each.__name__: each for each in (DAG, Asset, AssetWatcher, timedelta, HudiTable, increment)}
        names |= {each.__name__: each for each in (snapshot, ingest_arrow, NotificationLogEventTrigger)}
        names |= {"task": task, "pa": pa, "metastore": self.metastore, "url": self.metastore_url}
        names |= {"checkpoint": None, "position": 0, "table_asset": table_asset}
        day = rows_of_a_day(self.columns)
        names["rows"] = day.to_pylist() if self.page in ("README.md", "docs/ingestion.md") else day
        names |= self._tables()
        if "table" in names:
            names["instant"] = names["table"].timeline().commits()[-1].requested_time
        return names

    def _land(self) -> None:
        for month in (10, 11, 12):
            day = rows_of_a_day(self.columns, month)
            places = [
                "landing",
                f"landing/2013-{month}-01",
                f"landing/day=2013-{month}-01",
                "history/flights",
                "history",
            ]
            if month == 12:
                places += ["landing/2013-12-02", "landing/day=2013-12-02"]
                places.append(f"landing/{date.today()}")
            for place in places:
                folder = self.folder / "srv" / place
                folder.mkdir(parents=True, exist_ok=True)
                pq.write_table(day, folder / f"{month}.parquet")

    def _create(self) -> None:
        CreateTableOperator(
            task_id="create",
            table="lake.flights",
            location=self.location,
            schema=_TYPES,
            record_key=["flight"],
            partition_by=["year", "month"],
            ordering_field="at",
        ).execute({})
        for month in (10, 11):
            ingest_arrow(
                "lake.flights", rows_of_a_day(self.columns, month), "upsert", metastore=self.metastore
            )

        if self.page in ("docs/ingestion.md", "docs/transactions.md"):
            CreateTableOperator(
                task_id="create",
                table="lake.delays",
                location=f"{self.folder}/srv/lake/delays",
                schema={"dest": "string", "delay": "double"},
                record_key=["dest"],
            ).execute({})
            landing = self.folder / "srv" / "landing" / "delays"
            landing.mkdir()
            pq.write_table(pa.table({"dest": ["IAH"], "delay": [1.0]}), landing / "a.parquet")

    # --- the command line -----------------------------------------------------------------

    def _console(self, block: Block) -> str:
        done = [self._command(block, command) for command in block.commands]
        assert done, f"{block.place}: no line begins with a $"
        return "; ".join(dict.fromkeys(done))

    def _command(self, block: Block, command: str) -> str:
        program, *arguments = shlex.split(command.replace("\\\n", " "))
        if program == "export":
            return self._export(arguments)
        if "MUTANT_SECONDS=" in program:
            program, *arguments = arguments
        if program == "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text(), block.place
            return "a target of the Makefile"
        if program == "python":
            assert find_spec(arguments[1]), block.place
            return "a module that is there"
        if program == "pip":
            return "tests/packaging installs it"
        if program == ".venv/bin/mutmut":
            return "a tool of another group"
        assert program == "table-services", f"{block.place}: {program}"
        if "serve" in arguments:
            return "tests/processes serves"
        instant = HudiTable.open(self.location).timeline().commits()[-1].requested_time
        arguments = [instant if each == "INSTANT" else each for each in arguments]
        answer = CliRunner().invoke(
            app, arguments, input="y\n", env={"TABLE_SERVICES_METASTORE_DB": self.metastore_url}
        )
        assert answer.exit_code == 0, f"{block.place}: {command}\n{answer.output}\n{answer.exception!r}"
        return "run"

    def _export(self, settings: list[str]) -> str:
        for setting in settings:
            name, _, value = setting.partition("=")
            if not name.startswith("AIRFLOW_CONN_"):
                continue
            given = json.loads(value)
            connection = Connection(conn_id=name, **{**given, "extra": json.dumps(given.get("extra", {}))})
            assert connection.conn_type in ("table_metastore", "table_lock"), name
        return "connections that are known"


def variables_of(folder: Path) -> dict[str, str]:
    """The connections and variables that the pages name, for the environment."""
    two = {"conn_type": "table_metastore", "extra": {"url": f"sqlite:///{folder}/two.db"}}
    return {
        "AIRFLOW_CONN_THERE": json.dumps(two),
        "AIRFLOW_CONN_HERE": os.environ["AIRFLOW_CONN_TABLE_METASTORE_DEFAULT"],
        "AIRFLOW_CONN_S3_COPIES": json.dumps({"conn_type": "fs"}),
        "AIRFLOW_CONN_SPARK": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW_VAR_FILE_SIZE": "134217728",
    }
