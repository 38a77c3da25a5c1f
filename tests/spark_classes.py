"""Spark's classes as Java has them in memory: JVMs that share them start with a third less of CPU time."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dags_examples.demo.spark_server import spark_connect_server


def archive(file: Path) -> None:
    """Archive what a Spark Connect server loads until it serves.

    A JVM with other garbage collection, another Java or another class path goes without, and so do
    all where Java comes without an archive of its own classes.

    :param file: to be given to JVMs as ``-XX:SharedArchiveFile``; empty where Java cannot make one.
    """
    options = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit="{file.absolute()}"'
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_connect_server(Path(folder) / "server.log", conf={"spark.driver.extraJavaOptions": options}),
    ):
        pass  # the archive is written when it ends
    file.touch()


if __name__ == "__main__":
    archive(Path(sys.argv[1]))
