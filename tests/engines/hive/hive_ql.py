"""Hive QL 4.0.1: Hive's own command line, with MapReduce in its process, on any metastore.

``hive-exec`` and ``hive-cli`` come from Maven Central, with their dependencies (240 MB).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dags_examples.demo.spark_server import java_environment
from tests.engines.hive.hive4 import as_site
from tests.engines.maven_central import LEFT_OUT, Artifact, resolve
from tests.processes.metastore.hive_metastore import OPENED

VERSION = "4.0.1"
QL = (
    Artifact(f"org.apache.hive:hive-exec:{VERSION}", transitive=True, left_out=LEFT_OUT),
    Artifact(f"org.apache.hive:hive-cli:{VERSION}"),
    Artifact("org.apache.logging.log4j:log4j-api:2.18.0"),
    Artifact("org.apache.logging.log4j:log4j-core:2.18.0"),
    Artifact("org.apache.hadoop:hadoop-client-api:3.3.6"),
    Artifact("org.apache.hadoop:hadoop-client-runtime:3.3.6"),
    Artifact("org.apache.hadoop:hadoop-hdfs:3.3.6"),
    Artifact("com.cronutils:cron-utils:9.1.6"),
)
TRANSACTIONS = {
    "hive.support.concurrency": "true",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
}
_LOGGING = """\
status=ERROR
name=ql
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1}: %m%n
rootLogger.level=ERROR
rootLogger.appenderRef.c.ref=c
"""
_MARK = "#### "


def run_statements(
    statements: Sequence[str],
    port: int,
    folder: Path,
    warehouse: str,
    settings: Mapping[str, str] | None = None,
) -> tuple[list[list[str]], list[str]]:
    """Run statements one after the other in one session, and continue after errors.

    :param port: the metastore's port.
    :param folder: the folder for the session's files.
    :param warehouse: URL of the metastore's warehouse.
    :param settings: further settings of ``hive-site.xml``.
    :return: for each statement the lines that it printed; and the errors of all, in their order.
    """
    jars = resolve("hive-ql", QL)
    configuration, scratch = folder / "conf", folder / "scratch"
    for one in (configuration, scratch):
        one.mkdir(parents=True, exist_ok=True)
    all_settings = {
        "hive.metastore.uris": f"thrift://127.0.0.1:{port}",
        "hive.execution.engine": "mr",
        "mapreduce.framework.name": "local",
        "hive.exec.mode.local.auto": "true",
        "hive.exec.scratchdir": f"file:{scratch}",
        "hive.exec.local.scratchdir": f"{scratch}/local",
        "hive.metastore.warehouse.dir": warehouse,
        "hive.cli.errors.ignore": "true",
        "hive.async.log.enabled": "false",
        "fs.defaultFS": "file:///",
        **(settings or {}),
    }
    (configuration / "hive-site.xml").write_text(as_site(all_settings))
    logging = configuration / "log4j2.properties"
    logging.write_text(_LOGGING)
    script = folder / "statements.sql"
    script.write_text("".join(f'!echo "{_MARK}{n}";\n{one};\n' for n, one in enumerate(statements)))
    command = ["java", "-Xmx900m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [
        f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in (*OPENED, "util.concurrent.atomic")
    ]
    command += [f"-Dlog4j2.configurationFile={logging}", f"-Djava.io.tmpdir={scratch}"]
    command += ["-cp", f"{configuration}:{jars}/*", "org.apache.hadoop.hive.cli.CliDriver", "-f", str(script)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=java_environment() | {"JAVA_TOOL_OPTIONS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    (folder / "errors.log").write_text(done.stderr)
    printed: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith(f'"{_MARK}'):
            printed.append([])
        elif printed:
            printed[-1].append(line)
    return printed, [line for line in done.stderr.splitlines() if line.startswith("FAILED")]
