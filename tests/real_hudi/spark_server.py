"""A Spark session with the JVM's Hudi, which answers calls over a socket.

The server runs in the environment of the JVM's Hudi, and imports no module of this project::

    python spark_server.py SOCKET BUNDLE FOLDER [NAME=VALUE ...]

A connection has a Spark session of its own, so its settings affect no other connection. A call is the name of
a method of :class:`Session`, with positional and keyword arguments. The answer says whether the call
succeeded, and has its result or Spark's error. Calls and answers are pickled.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, Listener
from typing import Any

from pyspark.sql import Row, SparkSession


class Session:
    """The methods that a connection can call."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        return _plain(self.spark.sql(text).collect())

    def read(self, location: str, options: dict[str, str], where: str | None) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        frame = self.spark.read.format("hudi").options(**options).load(location)
        return _plain((frame.where(where) if where else frame).collect())

    def write(
        self, location: str, rows: list[tuple[Any, ...]], columns: str, options: dict[str, str], mode: str
    ) -> None:
        """Write rows into a table; ``columns`` are as in DDL."""
        frame = self.spark.createDataFrame(rows, columns)
        frame.write.format("hudi").options(**options).mode(mode).save(location)

    def run(self, source: str, **names: Any) -> Any:
        """Run Python code with ``spark`` and the given names in scope; return its variable ``result``."""
        scope = {"spark": self.spark, "result": None, **names}
        exec(source, scope)
        return _plain(scope["result"])


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return _plain(value.asDict(recursive=True))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def start(bundle: str, folder: str, more: dict[str, str]) -> SparkSession:
    """Start a session with the settings that Hudi's documentation gives for Spark 3.5."""
    zone = more.pop("user.timezone", "UTC")
    settings = {
        "spark.driver.extraClassPath": bundle,
        "spark.driver.memory": "2g",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.ui.enabled": "false",
        # Compiling code for a few rows costs more than it saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # A JVM that runs for a few minutes does not gain from the second compiler. With the default sizes, of
        # heap and classes, a fifth of its time is garbage collection.
        "spark.driver.extraJavaOptions": f"-Duser.timezone={zone} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-Xms1g -Xmn640m -XX:MetaspaceSize=256m",
        **more,
    }
    builder = SparkSession.builder.master("local[2]").appName("real Hudi")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Hudi 1.2.0 compares the schema of its metadata table by identity, and in about one process of six it has
    # two of them: then each write that appends to bloom_filters or record_index fails with
    # "ArrayIndexOutOfBoundsException: Index 8 out of bounds for length 7". Not if this class comes first.
    spark._jvm.java.lang.Class.forName("org.apache.hudi.metadata.HoodieMetadataPayload")
    return spark


def serve(connection: Connection, session: Session) -> None:
    """Answer one connection until it ends."""
    while True:
        try:
            name, arguments, named = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(session, name)(*arguments, **named))
        except Exception as error:  # the caller gets any error of Spark
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send(answer)


def end_with_whoever_started_this() -> None:
    """End this process when its parent is killed, because then the standard input closes."""
    sys.stdin.read()
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve until the process is ended."""
    threading.Thread(target=end_with_whoever_started_this, daemon=True).start()
    socket, bundle, folder, *settings = sys.argv[1:]
    spark = start(bundle, folder, dict(setting.split("=", 1) for setting in settings))
    with Listener(socket, "AF_UNIX", backlog=20) as listener:
        while True:
            connection = listener.accept()
            session = Session(spark.newSession())
            threading.Thread(target=serve, args=(connection, session), daemon=True).start()


if __name__ == "__main__":
    main()
