"""Flink 1.17 with its Hive catalog, in one JVM, on any metastore.

Flink's table planner and its Hive connector come from Maven Central, with their dependencies (250 MB).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dags_examples.demo.spark_server import java_environment
from tests.engines.hive.hive4 import as_site
from tests.engines.maven_central import LEFT_OUT, Artifact, compiled, resolve
from tests.processes.metastore.hive_metastore import OPENED

VERSION = "1.17.1"
_HADOOP = "3.3.6"
FLINK = (
    Artifact(f"org.apache.flink:flink-table-planner_2.12:{VERSION}", transitive=True, left_out=LEFT_OUT),
    Artifact(f"org.apache.flink:flink-clients:{VERSION}", transitive=True, left_out=LEFT_OUT),
    Artifact(f"org.apache.flink:flink-connector-files:{VERSION}", transitive=True, left_out=LEFT_OUT),
    Artifact(f"org.apache.flink:flink-sql-connector-hive-3.1.3_2.12:{VERSION}"),
    Artifact(f"org.apache.hadoop:hadoop-client-api:{_HADOOP}"),
    Artifact(f"org.apache.hadoop:hadoop-client-runtime:{_HADOOP}"),
    Artifact(f"org.apache.hadoop:hadoop-mapreduce-client-core:{_HADOOP}"),
    Artifact("commons-logging:commons-logging:1.2"),
)
_SOURCE = Path(__file__).parents[1] / "java" / "FlinkStatements.java"


def run_statements(statements: Sequence[str], port: int, folder: Path, warehouse: str) -> list[list[Any]]:
    """The rows of each statement, its fields as texts.

    :param port: the metastore's port.
    :param folder: the folder for settings, statements, rows and the log.
    :param warehouse: URL of the metastore's warehouse.
    :raises RuntimeError: when a statement fails.
    """
    jars = resolve("flink", FLINK)
    classes = compiled("flink-statements", _SOURCE, f"{jars}/*")
    settings = {
        "hive.metastore.uris": f"thrift://127.0.0.1:{port}",
        "hive.metastore.warehouse.dir": warehouse,
        "hive.exec.scratchdir": f"file:{folder}/scratch",
    }
    (folder / "hive-site.xml").write_text(as_site(settings))
    asked, answered = folder / "statements.txt", folder / "rows.jsonl"
    catalog = (
        f"CREATE CATALOG ours WITH ('type' = 'hive', 'hive-conf-dir' = '{folder}', 'hive-version' = '3.1.3')"
    )
    everything = [catalog, "USE CATALOG ours", *statements]
    asked.write_text("".join(f"{json.dumps(one)}\n" for one in everything))
    command = [
        "java",
        "-Xmx700m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Djava.io.tmpdir={folder}",
    ]
    command += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", f"{classes}:{jars}/*", "FlinkStatements", str(asked), str(answered)]
    with (folder / "flink.log").open("w") as log:
        done = subprocess.run(
            command,
            cwd=folder,
            env=java_environment() | {"JAVA_TOOL_OPTIONS": ""},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=900,
        )
    if done.returncode:
        raise RuntimeError(f"Flink ended: {(folder / 'flink.log').read_text()[-4000:]}")
    rows = [json.loads(line) for line in answered.read_text().splitlines()]
    return rows[2:]
