"""Running a Spark job and reading its result: in a child process, or by spark-submit."""

from __future__ import annotations

import abc
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Protocol

import psutil
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_provider.exceptions import InvalidConnectionError, JobFailedError
from airflow_provider.hooks.spark_cluster import StandaloneCluster, spark_cluster
from airflow_provider.operators._base.engine_archive import write_engine_archive
from airflow_provider.spark.job_answer import JOBS_FOLDER, RESULT_PREFIX, result_of_answer, take_answer
from airflow_provider.spark.session import spark_log_file
from airflow_provider.table.storage import Storage

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_TAIL_LINES = 60
# Airflow kills a task that has not ended five seconds after on_kill.
_SECONDS_TO_TERMINATE = 2.0
# The wait for a process that the system does not end takes no longer than this.
_SECONDS_TO_END = 30
# A job's engine, its entry and its description, in a folder that all machines of a cluster see.
_SHIPPED = ("jar", "py", "specification.json")
_JOB_FILE = Path(__file__).parents[2] / "spark" / "job.py"


def spark_job(
    log: Logger, conn_id: str | None, conf: Mapping[str, str], submit_options: Mapping[str, Any]
) -> SparkJob:
    """The job runner for a connection.

    :param log: the task's log.
    :param conn_id: a connection of type ``spark`` or ``spark_connect``; a local session when None.
    :param conf: Spark's configuration, for spark-submit; a local session gets it from the job, and a
        Spark Connect server has its own.
    :param submit_options: further arguments of ``SparkSubmitHook``.
    :raises InvalidConnectionError: when the connection does not exist (the Spark provider would fall back to
        YARN), or it does not support the given options.
    """
    if conn_id is None:
        _refuse(submit_options, "spark_submit_options", "a local session")
        return ChildSparkJob(log, {})
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise InvalidConnectionError(
            f"connection {conn_id!r} does not exist; create it with type 'spark' or 'spark_connect', or "
            "leave spark_conn_id out for a local session",
            connection=conn_id,
        ) from None
    if connection.conn_type not in (SparkSubmitHook.conn_type, SparkConnectHook.conn_type):
        raise InvalidConnectionError(
            f"connection {conn_id!r} is of type {connection.conn_type!r}, which runs no Spark job; give one "
            "of type 'spark' or 'spark_connect', or leave spark_conn_id out for a local session",
            connection=conn_id,
        )
    if connection.conn_type != SparkConnectHook.conn_type:
        return SubmittedSparkJob(log, conn_id=conn_id, conf=conf, options=submit_options)
    _refuse(submit_options, "spark_submit_options", f"the Spark Connect server of {conn_id!r}")
    _refuse(conf, "spark_conf", f"the Spark Connect server of {conn_id!r}")
    if connection.password:
        mask_secret(connection.password)
    url = SparkConnectHook(conn_id).get_connection_url()
    if session_id := connection.extra_dejson.get("session_id"):
        url = f"{url};session_id={session_id}"
    return ChildSparkJob(log, {"SPARK_REMOTE": url})


def _refuse(options: Mapping[str, Any], name: str, where: str) -> None:
    if options:
        raise InvalidConnectionError(f"{where} takes no {name}; leave out: {', '.join(sorted(options))}")


class Job(Protocol):
    """A job as data for :mod:`airflow_provider.spark.job`."""

    @property
    def job_id(self) -> str:
        """The id that names the answer's file."""

    def to_json(self) -> str:
        """The job as text; it may contain secrets."""


class SparkJob(abc.ABC):
    """A Spark job that is running.

    :param log: the task's log; the job's lines are written there as they arrive.
    :cvar outlives_task: whether the job may continue when the worker that started it dies.
    """

    outlives_task: ClassVar[bool]

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._answer: dict[str, Any] | None = None
        self._killed = threading.Event()

    @property
    def can_be_left(self) -> bool:
        """Whether :meth:`leave` is possible: the job needs no process on this worker while it runs."""
        return False

    def leave(self, job: Job, storage: Storage) -> str:
        """Start the job and leave it to the cluster.

        :param job: the job as data.
        :param storage: the table's storage, where the job also leaves its answer.
        :return: the id that the cluster's manager gave to its driver.
        :raises JobFailedError: when it was killed before it was submitted, or was not accepted.
        """
        raise NotImplementedError

    @property
    def is_killed(self) -> bool:
        """Whether :meth:`kill` was called."""
        return self._killed.is_set()

    def run(self, job: Job, storage: Storage) -> dict[str, Any]:
        """Start the job and wait for its end.

        :param job: the job as data.
        :param storage: the table's storage, where the job also leaves its answer.
        :return: the job's result.
        :raises TableServiceError: the job's error, in its original type.
        :raises JobFailedError: when it was killed, or ended without an answer; the message has the end of
            its log.
        """
        with tempfile.TemporaryDirectory(prefix="table-services-") as folder:
            specification = Path(folder) / f"{job.job_id}.json"
            # Only its owner may read the folder, because storage options may contain secrets.
            specification.write_text(job.to_json())
            end = self._run(specification, storage)
        stored = None
        try:
            stored = take_answer(storage, job.job_id)  # only the task's owner reads the file
        except OSError:
            if self._answer is None:
                raise
        answer = self._answer or stored
        if answer is None and self.is_killed:
            raise JobFailedError(f"job {job.job_id} was killed with its task", job_id=job.job_id)
        if answer is None:
            tail, spark_log = "\n".join(self._tail), spark_log_file(job.job_id)
            also = f"; Spark's own log is {spark_log}" if spark_log.exists() else ""
            raise JobFailedError(
                f"job {job.job_id} ended without a result ({end}){also}; the end of its log:\n{tail}",
                job_id=job.job_id,
            )
        return result_of_answer(answer)

    def kill(self) -> None:
        """End the job at once, with all its processes; may be called from a signal handler."""
        self._killed.set()
        self._kill()

    @abc.abstractmethod
    def _run(self, specification: Path, storage: Storage) -> str:
        """Run to the end, successful or not; returns a description of the end for people."""

    @abc.abstractmethod
    def _kill(self) -> None: ...

    def _listen(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            text = line.rstrip()
            if text.startswith(RESULT_PREFIX):
                with contextlib.suppress(json.JSONDecodeError):  # then the answer file is read
                    self._answer = json.loads(text.removeprefix(RESULT_PREFIX))
                continue
            self._tail.append(text)
            yield line


_LOGGED = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)"
)


def relay(log: Logger, line: str) -> None:
    """Log a line of a job as the task's own: with the job's level, and without a second time.

    :param log: the task's log.
    :param line: the line, without its end. A line that no logger of the job wrote is logged as it is.
    """
    found = _LOGGED.fullmatch(line)
    if found is None:
        log.info(line)
        return
    level, logger, message = found.groups()
    ours = logger == "__main__" or logger.startswith("airflow_provider.")
    getattr(log, level.lower())("%s", message if ours else f"{logger}: {message}")


class ChildSparkJob(SparkJob):
    """A job in a child process, which has its own process group and dies with its parent.

    :param log: the task's log.
    :param environment: added to this process's own; ``SPARK_REMOTE`` there makes the job use a
        Spark Connect server in place of a session of its own.
    :param if_killed: advice for people when the system kills the job.
    """

    outlives_task = False

    def __init__(self, log: Logger, environment: Mapping[str, str], *, if_killed: str = "") -> None:
        super().__init__(log)
        self._environment = environment
        self._if_killed = if_killed
        self._process: subprocess.Popen[str] | None = None

    def _run(self, specification: Path, storage: Storage) -> str:
        # A task's standard input is its channel to Airflow, so the job must not have it.
        with subprocess.Popen(  # noqa: S603 - our own module, by this interpreter
            [sys.executable, "-m", "airflow_provider.spark.job", str(specification)],
            env={**_ALLOCATOR, **os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as self._process:
            if self.is_killed:
                self._kill()
            stdout: IO[str] = self._process.stdout  # type: ignore[assignment]  # PIPE
            try:
                for line in self._listen(stdout):
                    relay(self._log, line.rstrip())
                ended = _describe_exit(self._process.wait(), self._if_killed)
            except BaseException:
                self._kill()  # for example at a timeout of the task
                raise
            finally:
                self._process.wait()
                _end_session(self._process)
            return ended

    def _kill(self) -> None:
        if self._process is None:
            return
        if "SPARK_REMOTE" not in self._environment:
            _kill_session(self._process)
            return
        # The server's tasks would continue to write after the rollback; a driver that is terminated stops
        # them first.
        self._process.terminate()
        last_word = threading.Timer(_SECONDS_TO_TERMINATE, self._kill_if_alive)
        last_word.daemon = True
        last_word.start()

    def _kill_if_alive(self) -> None:
        if self._process is not None and self._process.poll() is None:
            _kill_session(self._process)


_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"} if sys.platform == "linux" else {}
"""Arrow's default allocator keeps the memory of each thread apart, in huge pages, and the kernel clears a
huge page for a few kilobytes. A new process clears most: a quarter of a bulk insert's processor time."""


class SubmittedSparkJob(SparkJob):
    """A job by ``spark-submit``, through a connection of the Spark provider.

    :param log: the task's log.
    :param conn_id: connection of type ``spark``.
    :param conf: Spark's configuration.
    :param options: further arguments of the Spark provider's ``SparkSubmitHook``, such as
        ``executor_memory``.
    """

    outlives_task = True

    def __init__(
        self, log: Logger, *, conn_id: str, conf: Mapping[str, str], options: Mapping[str, Any]
    ) -> None:
        super().__init__(log)
        connection = BaseHook.get_connection(conn_id)
        deploy_mode = options.get("deploy_mode") or connection.extra_dejson.get("deploy-mode")
        self._on_cluster = deploy_mode == "cluster"
        self._cluster = spark_cluster(connection) if self._on_cluster else None
        self._conn_id = conn_id
        self._conf = {**_python_conf(connection.host or "", self._on_cluster), **conf}
        self._options = dict(options)
        self._hook: _ListeningSubmitHook | None = None

    @property
    def can_be_left(self) -> bool:
        """See :meth:`SparkJob.can_be_left`."""
        return self._cluster is not None

    def leave(self, job: Job, storage: Storage) -> str:
        """See :meth:`SparkJob.leave`."""
        if self._cluster is None:
            raise RuntimeError("the driver of this job needs its worker")
        with tempfile.TemporaryDirectory(prefix="table-services-") as folder:
            specification = Path(folder) / f"{job.job_id}.json"
            specification.write_text(job.to_json())
            end = self._run(specification, storage, is_left=True)
        hook = self._hook
        submission = None if hook is None else hook._driver_id or hook._yarn_application_id
        if submission is None or self.is_killed:
            self.kill()
            delete_shipped(storage, job.job_id)
            tail = "\n".join(self._tail)
            raise JobFailedError(
                f"job {job.job_id} was not accepted by the cluster ({end}); the end of spark-submit's log:\n"
                f"{tail}",
                job_id=job.job_id,
            )
        return submission

    def _run(self, specification: Path, storage: Storage, *, is_left: bool = False) -> str:
        conf: Mapping[str, str] = {}
        if self._cluster is not None:
            conf = self._cluster.submitting if is_left else self._cluster.following
        hook = self._hook = self._submit_hook(specification, storage, conf)
        if self.is_killed:
            return "killed before it was submitted"
        try:
            hook.submit(hook.application, start_new_session=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise InvalidConnectionError(
                f"connection {self._conn_id!r}: the program {error.filename!r} is not on this worker's PATH; "
                "install Spark there (the package pyspark brings it), or leave spark_conn_id out",
                connection=self._conn_id,
            ) from error
        except (AirflowException, RuntimeError) as error:
            return str(error)
        finally:
            if hook._submit_sp is not None:
                hook._submit_sp.stdout.close()  # the hook leaves it open
            _end_session(hook._submit_sp)
            if not is_left:
                delete_shipped(storage, specification.stem)
        return "spark-submit ended with success"

    def _submit_hook(
        self, specification: Path, storage: Storage, conf: Mapping[str, str]
    ) -> _ListeningSubmitHook:
        if isinstance(self._cluster, StandaloneCluster):
            return self._hook_of_standalone(specification, storage, conf)
        archive = str(write_engine_archive(specification.parent))
        py_files = ",".join(filter(None, [archive, self._options.get("py_files")]))
        shipped = [str(specification)] if self._on_cluster else []
        files = ",".join(filter(None, [*shipped, self._options.get("files")]))
        return _ListeningSubmitHook(
            self,
            conn_id=self._conn_id,
            conf={**self._conf, **conf},
            # A driver on the cluster finds shipped files in its working folder.
            application_args=[specification.name if self._on_cluster else str(specification)],
            **{"name": "table-services", **self._options, "py_files": py_files, "files": files or None},
        )

    def _hook_of_standalone(
        self, specification: Path, storage: Storage, conf: Mapping[str, str]
    ) -> _ListeningSubmitHook:
        """Spark's own manager runs a driver in Java only; so the driver is a spark-submit of its own.

        Spark's documentation of its REST interface shows this way for Python. The manager ships one archive,
        which has to be called a jar; the driver finds the other files in the table's folder, which each
        machine of the cluster sees.
        """
        folder = shared_folder(storage, self._conn_id)
        archive = write_engine_archive(specification.parent)
        shipped = {name: str(folder / f"{specification.stem}.{name}") for name in _SHIPPED}
        for source, target in zip((archive, _JOB_FILE, specification), shipped.values(), strict=True):
            put_for_owner(source, Path(target))
        hook = _ListeningSubmitHook(
            self,
            application=shipped["jar"],
            conn_id=self._conn_id,
            conf={**self._conf, **conf},
            java_class="org.apache.spark.deploy.SparkSubmit",
            **{"name": "table-services", **self._options, "deploy_mode": "cluster"},
        )
        py_files = ",".join(filter(None, [shipped["jar"], self._options.get("py_files")]))
        hook._application_args = [
            *("--master", hook._connection["master"], "--deploy-mode", "client"),
            *("--py-files", py_files, shipped["py"], shipped["specification.json"]),
        ]
        return hook

    def _kill(self) -> None:
        if self._hook is not None:
            # If spark-submit's own JVM ended first, its Python driver would stay alive as an orphan and
            # write. So the whole session ends at once, then the hook ends the part on a cluster.
            _kill_session(self._hook._submit_sp)
            self._hook.on_kill()


class _ListeningSubmitHook(SparkSubmitHook):
    def __init__(self, job: SubmittedSparkJob, application: str = str(_JOB_FILE), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application = application
        self._job = job

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._job._listen(itr))


def shared_folder(storage: Storage, conn_id: str) -> Path:
    """The table's folder for jobs, on a file system that a cluster's machines see.

    :raises InvalidConnectionError: when the table is elsewhere.
    """
    if "://" in storage.root:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: in deploy mode 'cluster' Spark's own manager starts a driver of Python "
            f"only from files that each of its machines sees, and the table is at {storage.root}; use deploy "
            "mode 'client', Spark Connect, or YARN",
            connection=conn_id,
        )
    folder = Path(storage.root) / JOBS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def delete_shipped(storage: Storage, job_id: str) -> None:
    """Delete the files that a job's driver found in the table's folder; a missing folder is no error."""
    for name in _SHIPPED:
        storage.delete(f"{JOBS_FOLDER}/{job_id}.{name}")


def put_for_owner(source: Path, target: Path) -> None:
    """Copy a file that may contain secrets; only its owner may read the copy."""
    target.touch(0o600)
    target.write_bytes(source.read_bytes())


def _python_conf(master: str, on_cluster: bool) -> dict[str, str]:
    """Make drivers and executors on this machine use this interpreter, instead of ``python3`` on PATH."""
    if on_cluster:
        return {}
    conf = {"spark.pyspark.driver.python": sys.executable}
    if master.startswith("local"):
        conf["spark.pyspark.python"] = sys.executable
    return conf


def _kill_session(process: subprocess.Popen[str] | None) -> list[psutil.Process]:
    """Kill all processes of a job, and return them.

    Spark's Python workers have their own process groups, so the session identifies the job's processes.
    """
    alive = [] if process is None else list(_processes_of(process.pid))
    for each in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return alive


def _end_session(process: subprocess.Popen[str] | None) -> None:
    """Kill all processes of a job and wait for their end, so that none writes after a rollback."""
    for _ in range(_SECONDS_TO_END):
        if not (alive := _kill_session(process)):
            return
        psutil.wait_procs(alive, timeout=1)


def _processes_of(session: int) -> Iterator[psutil.Process]:
    for each in psutil.process_iter():
        # A process may have ended, or this user may not see it.
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(each.pid) == session and each.status() != psutil.STATUS_ZOMBIE:
                yield each


def _describe_exit(code: int, if_killed: str) -> str:
    if code >= 0:
        return f"exit code {code}"
    hint = f", perhaps by the system for want of memory{if_killed}" if -code == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{hint}"
