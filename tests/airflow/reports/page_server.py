"""Airflow's API server alone, under a prefix; one of its users lacks the right to see plugins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from tests.airflow.processes import until
from tests.processes.servers import free_port

PREFIX = "/behind/proxy"
USERS = {"viewer": "viewer", "guest": "viewer"}


class NotForGuests(SimpleAuthManager):
    """Airflow's simple auth manager, whose user ``guest`` may see no plugins."""

    def is_authorized_view(self, *, access_view, user):
        return user.username != "guest" and super().is_authorized_view(access_view=access_view, user=user)


class ApiServer:
    """A running API server.

    :param home: a new folder for the server's own files.
    :param database: the SQLite file of an Airflow, which other processes may use at the same time.
    :param environment: variables for the server's environment.
    """

    def __init__(self, home: Path, database: Path, **environment: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "dags").mkdir(exist_ok=True)
        (home / "passwords.json").write_text(json.dumps({name: name for name in USERS}))
        port = free_port()
        self.home = home
        self.url = f"http://127.0.0.1:{port}{PREFIX}"
        settings = {
            "AIRFLOW_HOME": home,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"sqlite+aiosqlite:///{database}",
            "AIRFLOW__CORE__DAGS_FOLDER": home / "dags",
            "AIRFLOW__CORE__LOAD_EXAMPLES": False,
            "AIRFLOW__CORE__AUTH_MANAGER": f"{NotForGuests.__module__}.{NotForGuests.__name__}",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{n}:{r}" for n, r in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": home / "passwords.json",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": port,
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": 1,
            "PYTHONPATH": Path(__file__).parents[3],
        } | environment
        with (home / "api-server.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "api-server", "--apps", "core"],
                env={**os.environ, **{name: str(value) for name, value in settings.items()}},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tokens: dict[str, str] = {}

    def wait(self) -> None:
        """Wait until the server answers."""
        until(self._answers, seconds=400, every=0.3)

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)

    def get(self, path: str, user: str | None = "viewer") -> dict:
        status, content = self.ask("GET", path, user)
        assert status == 200, (path, status, content[:2000], self.log())
        return json.loads(content)

    def ask(self, method: str, path: str, user: str | None = "viewer") -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {self.token(user)}"} if user else {}
        request = urllib.request.Request(self.url + path, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def token(self, user: str) -> str:
        if user not in self._tokens:
            body = json.dumps({"username": user, "password": user}).encode()
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"{self.url}/auth/token", body, headers)
            with urllib.request.urlopen(request, timeout=300) as answer:
                self._tokens[user] = json.load(answer)["access_token"]
        return self._tokens[user]

    def log(self) -> str:
        return (self.home / "api-server.log").read_text()[-6000:]

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False
