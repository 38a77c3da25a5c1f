"""Hive's own Java client, ``HiveMetaStoreClient``: 2.3.10 from pyspark, 4.0.1 from the real Hive."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dags_examples.demo.spark_server import java_environment
from tests.engines.calls.java_objects import Call
from tests.engines.hive.hive4 import classpath, server_jars
from tests.engines.maven_central import compiled
from tests.processes.metastore.hive_metastore import OPENED
from tests.processes.servers import JARS

_SOURCE = Path(__file__).parents[1] / "java" / "Calls.java"
VERSIONS = ("2.3.10", "4.0.1")


@dataclass(frozen=True)
class Told:
    """The answers that a client got.

    :param methods: all methods of the interface ``IMetaStoreClient`` of the client's version.
    :param answers: for each call ``answer``, or ``error`` and ``message``; nothing if the version lacks the
        method.
    """

    methods: frozenset[str]
    answers: list[dict[str, Any]]


def ask(version: str, port: int, calls: Sequence[Call], folder: Path) -> Told:
    """Make calls, one after the other, by one client.

    :param version: the client's version, one of :data:`VERSIONS`.
    :param port: the metastore's port.
    :param folder: the folder for the calls, the answers and the log.
    """
    jars = f"{JARS}/*" if version == "2.3.10" else classpath(server_jars())
    classes = compiled(f"java-client-{version}", _SOURCE, jars)
    asked, answered = folder / "calls.jsonl", folder / "answers.jsonl"
    asked.write_text("".join(f"{json.dumps(call.as_json())}\n" for call in calls))
    command = ["java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", f"{classes}:{jars}", "Calls", str(port), str(asked), str(answered)]
    with (folder / "client.log").open("w") as log:
        done = subprocess.run(
            command,
            cwd=folder,
            env=java_environment() | {"JAVA_TOOL_OPTIONS": ""},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=600,
        )
    if done.returncode:
        raise RuntimeError(f"the client ended: {(folder / 'client.log').read_text()[-3000:]}")
    methods, *answers = map(json.loads, answered.read_text().splitlines())
    return Told(frozenset(methods), answers)
