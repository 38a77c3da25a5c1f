"""Checks that the installed PySpark is complete, and fits the Spark that a job connects to.

``pyspark`` and ``pyspark-client`` share one folder. If both are installed in different versions, one has
overwritten files of the other, and later failures do not name this cause. Over Spark Connect an older client
may connect to a newer server, but a newer client may not connect to an older server.
"""

from __future__ import annotations

import os
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.exceptions import SparkVersionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (4, 1)
"""The oldest Spark that the jobs run on: the first one with ``DataFrame.repartitionById``."""


def check_installed(*, with_jvm: bool) -> None:
    """Make sure that this Python has one complete PySpark.

    :param with_jvm: whether the job starts a Spark on this machine, which needs more than the client.
    :raises SparkVersionError: when there is no PySpark, or only the client, or when two versions have
        overwritten each other.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkVersionError(
            "PySpark is not installed here; for a Spark on this machine: "
            "pip install 'airflow-provider-table-services[spark]', for a Spark Connect server: "
            "pip install pyspark-client, of the server's version"
        )
    folder = Path(found.origin).parent
    whole, client = _installed_in(folder, "pyspark"), _installed_in(folder, "pyspark-client")
    if whole is not None and client is not None and whole.version != client.version:
        raise SparkVersionError(
            f"pyspark {whole.version} and pyspark-client {client.version} are installed in one folder, "
            f"{folder}, and have overwritten each other's files; install both in one version: "
            f"pip install --force-reinstall --no-deps pyspark=={client.version} "
            f"pyspark-client=={client.version}",
            pyspark=whole.version,
            client=client.version,
        )
    if with_jvm and not (folder / "jars").is_dir() and "SPARK_HOME" not in os.environ:
        version = "" if client is None else f"=={client.version}"
        raise SparkVersionError(
            "only Spark's client is installed here, and the job needs a Spark on this machine: pip install "
            f"pyspark{version}, or name a connection of type 'spark' or 'spark_connect' by spark_conn_id"
        )


def check_session(spark: SparkSession) -> None:
    """Make sure that the Spark behind a session fits the PySpark in this process.

    :param spark: the session.
    :raises SparkVersionError: when it does not fit; the message names the packages to install.
    """
    import pyspark

    client, server = _numbers(pyspark.__version__), _numbers(spark.version)
    if min(client, server) < OLDEST:
        raise SparkVersionError(
            f"Spark {spark.version}, by PySpark {pyspark.__version__}, is too old; the jobs need 4.1 or later"
        )
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if client > server or (client != server and not is_remote):
        package = "pyspark-client" if is_remote else "pyspark"
        raise SparkVersionError(
            f"PySpark {pyspark.__version__} does not fit Spark {spark.version}, which it talks to; on this "
            f"machine: pip install '{package}=={'.'.join(map(str, server))}.*'",
            client=pyspark.__version__,
            server=spark.version,
        )


def _installed_in(folder: Path, name: str) -> Distribution | None:
    """A distribution with files in a folder; the PySpark of SPARK_HOME belongs to no distribution."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return found if Path(str(found.locate_file("pyspark"))).resolve() == folder.resolve() else None


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
