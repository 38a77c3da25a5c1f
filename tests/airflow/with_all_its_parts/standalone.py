"""An Airflow of its own, with all the parts that ``airflow standalone`` starts, and its API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from tests.airflow.processes import until
from tests.processes.servers import free_port


class Airflow:
    """A running Airflow and its API.

    :param home: a new folder for Airflow's own files.
    :param database: an empty PostgreSQL database for Airflow's own tables. On SQLite, a request of its
        API that reads and then writes fails whenever another part has written in between.
    :param dags: content of the DAG files, by name.
    :param environment: variables for the environment of all parts.
    """

    def __init__(self, home: Path, database: str, dags: dict[str, str], **environment: str) -> None:
        self.home = home
        self.lake = home / "lake"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (home / "dags").mkdir(parents=True)
        self.lake.mkdir(exist_ok=True)
        for name, content in dags.items():
            (home / "dags" / name).write_text(content)
        settings = {
            **environment,
            "AIRFLOW_HOME": home,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database,
            "AIRFLOW__CORE__DAGS_FOLDER": home / "dags",
            "AIRFLOW__CORE__LOAD_EXAMPLES": False,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "AIRFLOW__CORE__PARALLELISM": 4,
            # The files do not change; to read them again is seconds of work each time.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 3600,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": self.port,
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": 1,
            # Five seconds are too few while the server starts on a busy machine, and a task fails that gets
            # no answer to five requests.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": 120,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": free_port(),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": free_port(),
            # It starts its parts by the name `airflow`.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with (home / "standalone.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "standalone"],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._token: str | None = None
        self._triggerer: subprocess.Popen | None = None

    def start(self, *dags: str) -> None:
        """Start Airflow, and wait until it runs and knows these DAGs."""
        until(self._is_healthy, seconds=400, every=0.5)
        self._token = self.call("GET", "/auth/token")["access_token"]
        until(
            lambda: set(dags) <= {dag["dag_id"] for dag in self.call("GET", "/api/v2/dags")["dags"]},
            every=0.5,
        )

    def stop(self) -> None:
        for process in filter(None, (self._triggerer, self._process)):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def kill_triggerer(self) -> None:
        """Kill the triggerer and the processes that it started."""
        [triggerer] = [
            process.pid
            for process in psutil.Process(self._process.pid).children()
            if process.cmdline()[-1] == "triggerer"
        ]
        for process in [*psutil.Process(triggerer).children(recursive=True), psutil.Process(triggerer)]:
            process.kill()

    def start_triggerer(self) -> None:
        """Start another triggerer, instead of the killed one."""
        with (self.home / "triggerer.log").open("wb") as log:
            self._triggerer = subprocess.Popen(
                [sys.executable, "-m", "airflow", "triggerer"],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode()[-2000:])
            error.add_note((self.home / "standalone.log").read_text()[-8000:])
            raise

    def command(self, *arguments: str) -> str:
        """The output of an ``airflow`` command."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def trigger(self, dag: str, **conf) -> str:
        run = self.call("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
        return f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"

    def state(self, run: str, task: str) -> str | None:
        return self.call("GET", f"{run}/taskInstances/{task}")["state"]

    def result(self, run: str, task: str) -> dict:
        return self.call("GET", f"{run}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")[
            "value"
        ]

    def log(self, run: str, task: str) -> str:
        return json.dumps(self.call("GET", f"{run}/taskInstances/{task}/logs/1?full_content=true"))

    def _is_healthy(self) -> bool:
        assert self._process.poll() is None, (self.home / "standalone.log").read_text()[-4000:]
        try:
            health = self.call("GET", "/api/v2/monitor/health")
        except OSError:
            return False
        return all(
            health[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor")
        )
