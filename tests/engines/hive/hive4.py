"""A real Hive 4.0.1 metastore on a PostgreSQL, with its notification log.

Its archive (77 MB) and the jars that the archive lacks come from Maven Central. ``DbNotificationListener``
writes the notification log. Maven Central has this class only for 4.2.0, so this module compiles its source
for 4.0.1.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from sqlalchemy import URL

from dags_examples.demo.spark_server import java_environment
from tests.engines.maven_central import Artifact, compile_java, resolve
from tests.processes.metastore.hive_metastore import OPENED, wait_for_metastore
from tests.processes.servers import free_port

VERSION = "4.0.1"
_HADOOP = "3.3.6"
_LISTENER = "org/apache/hive/hcatalog/listener/DbNotificationListener.java"

SERVER = (
    Artifact(f"org.apache.hive:hive-standalone-metastore-server:{VERSION}", kind="tar.gz", classifier="bin"),
    Artifact(f"org.apache.hadoop:hadoop-client-api:{_HADOOP}"),
    Artifact(f"org.apache.hadoop:hadoop-client-runtime:{_HADOOP}"),
    Artifact(f"org.apache.hadoop:hadoop-hdfs:{_HADOOP}"),
    Artifact("org.slf4j:slf4j-api:1.7.36"),
    Artifact("javax.servlet:javax.servlet-api:3.1.0"),
    Artifact("commons-collections:commons-collections:3.2.2"),
    Artifact("commons-io:commons-io:2.11.0"),
    Artifact("commons-lang:commons-lang:2.6"),
    Artifact("com.google.code.gson:gson:2.9.0"),
    Artifact("org.apache.httpcomponents:httpclient:4.5.13"),
    Artifact("org.eclipse.jetty:jetty-servlet:9.4.45.v20220203"),
    Artifact(f"org.apache.hive.hcatalog:hive-hcatalog-core:{VERSION}"),
    Artifact(f"org.apache.hive:hive-common:{VERSION}"),
)
_LISTENER_SOURCE = (
    Artifact("org.apache.hive.hcatalog:hive-hcatalog-server-extensions:4.2.0", classifier="sources"),
)
# Fields of 4.2.0's events that 4.0.1 lacks.
_NOT_YET = (
    r"import [\w.]*\.AlterPartitions(Event|Message);\n",
    r"  @Override\n  public void onAlterPartitions.*?\n  }\n",
    r", commitTxnEvent\.getDatabases\(\), commitTxnEvent\.getWriteId\(\)",
    r", abortTxnEvent\.getWriteId\(\)",
    r", reloadEvent\.getPartitions\(\)",
)

_LOGGING = """\
status=WARN
name=metastore
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1}: %m%n%throwable{12}
rootLogger.level=WARN
rootLogger.appenderRef.c.ref=c
"""


def server_jars() -> Path:
    """The folder of the server, ready to start."""
    folder = resolve("hive4", SERVER)
    # Two more databases than these tests have.
    for jar in [*folder.glob("lib/mssql*"), *folder.glob("lib/mysql*")]:
        jar.unlink()
    classes = folder / "listener"
    if not classes.exists():
        [source] = resolve("hive4-listener", _LISTENER_SOURCE).glob("*-sources.jar")
        with zipfile.ZipFile(source) as packed:
            text = packed.read(_LISTENER).decode()
        for pattern in _NOT_YET:
            text = re.sub(pattern, "", text, flags=re.DOTALL)
        listener = source.parent / Path(_LISTENER).name
        listener.write_text(text)
        compile_java("hive4", [listener], classpath(folder), classes)
    return folder


def classpath(folder: Path) -> str:
    return f"{folder}/listener:{folder}/lib/*:{folder}/*"


@contextmanager
def hive4_metastore(
    folder: Path,
    database: URL,
    *,
    java: Iterable[str] = ("-Xmx768m",),
    settings: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """A server that is ready; its port on the loopback interface.

    :param folder: the folder for its warehouse (``warehouse``), its settings and its log.
    :param database: an empty database of a PostgreSQL that listens on a port. In the Derby of Hive's archive,
        which is built for debugging, ``open_txns`` fails.
    :param java: options of its JVM.
    :param settings: further settings of ``metastore-site.xml``.
    """
    jars, port = server_jars(), free_port()
    warehouse = f"file:{folder}/warehouse"
    all_settings = {
        "metastore.thrift.uris": f"thrift://127.0.0.1:{port}",
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{database.host}:{database.port}/{database.database}",
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": str(database.username),
        "javax.jdo.option.ConnectionPassword": str(database.password),
        "metastore.warehouse.dir": warehouse,
        "metastore.warehouse.external.dir": warehouse,
        # The standalone server has not Hive's query engine, whose expressions and tasks are the defaults.
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "metastore.transactional.event.listeners": "org.apache.hive.hcatalog.listener.DbNotificationListener",
        "metastore.metastore.event.db.notification.api.auth": "false",
        "metastore.create.as.acid": "false",
        # A request that fails inside is not tried again for 20 seconds.
        "metastore.hmshandler.retry.attempts": "1",
        # Else every managed table without transactions becomes an external one.
        "metastore.metadata.transformer.class": " ",
        **(settings or {}),
    }
    configuration = folder / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "metastore-site.xml").write_text(as_site(all_settings))
    logging = configuration / "metastore-log4j2.properties"
    logging.write_text(_LOGGING)
    command = ["java", *java]
    command += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command += [f"-Dlog4j.configurationFile={logging}", f"-Dlog4j2.configurationFile={logging}"]
    command += [f"-Djava.io.tmpdir={folder}", "-cp", f"{configuration}:{classpath(jars)}"]
    environment = java_environment() | {"METASTORE_HOME": str(jars), "JAVA_TOOL_OPTIONS": ""}
    tool = "org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool"
    schema = [*command, tool, "-dbType", "postgres", "-initSchema"]
    made = subprocess.run(schema, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"Hive made no schema: {(made.stdout + made.stderr)[-3000:]}")
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_metastore(server, port, log)
        yield port
    finally:
        server.kill()
        server.wait()


def as_site(settings: Mapping[str, str]) -> str:
    """Settings as Hadoop's XML."""
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(lines)}</configuration>\n"
