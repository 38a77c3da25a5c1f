"""The entry of a job: ``python -m airflow_provider.spark.job SPECIFICATION``, or by spark-submit.

The process ends with its parent, the operator or the JVM of spark-submit. Otherwise it would remain as a
writer whose heartbeat does not stop: Spark's Python driver outlives a killed JVM.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    gc.disable()  # it takes a tenth of the time in which modules are loaded; main turns it on

# As spark-submit's main file, this module puts its folder first on the path, and that folder's modules would
# hide others.
_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [entry for entry in sys.path if entry != _HERE]

from airflow_provider import metrics  # noqa: E402
from airflow_provider.exceptions import TableServiceError  # noqa: E402
from airflow_provider.indexing import IndexJob  # noqa: E402
from airflow_provider.ingestion.ingest_job import IngestJob  # noqa: E402
from airflow_provider.jobs import ARROW  # noqa: E402
from airflow_provider.services.clustering import ClusteringJob  # noqa: E402
from airflow_provider.services.table_compaction import CompactionJob  # noqa: E402
from airflow_provider.spark.job_answer import RESULT_PREFIX, failure, success, write_answer  # noqa: E402
from airflow_provider.spark.session import forget_old_logs, spark_log_file  # noqa: E402
from airflow_provider.table.hudi_table import HudiTable  # noqa: E402
from airflow_provider.table.storage import Storage  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_ROLL_BACK = 60.0


AnyJob = IngestJob | ClusteringJob | CompactionJob | IndexJob
_JOBS: tuple[type[AnyJob], ...] = (IngestJob, ClusteringJob, CompactionJob, IndexJob)


class Terminated(BaseException):
    """A signal told the job to end; not an :class:`Exception`, so that no handler treats it as a failure."""


def main(arguments: list[str]) -> int:
    """Run the job that a file describes, and leave its answer.

    The answer goes to a line of the standard output and to a file in the table's storage; see
    :mod:`airflow_provider.spark.job_answer`.

    :param arguments: path of the specification, from :meth:`~airflow_provider.jobs.TableJob.to_json`.
    :return: exit code: 0 when the job committed, or had nothing to do, 1 when it did not.
    """
    _collect_garbage_of_work()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("py4j", "pyspark", "grpc", "botocore", "s3fs"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if len(arguments) != 1:
        print("usage: python -m airflow_provider.spark.job SPECIFICATION_FILE", file=sys.stderr)  # noqa: T201
        return 2
    parent = Parent()
    parent.watch()
    _listen_for_sigterm()
    job = _read(Path(arguments[0]).read_text())
    spark_log = spark_log_file(job.job_id)
    with metrics.collected() as measured:
        try:
            answer = success(_run(job, parent))
        except Terminated as error:
            answer = failure(error)
        except Exception as error:  # the operator has to get any error
            if not isinstance(error, TableServiceError):
                log.exception("job %s failed", job.job_id)
            if spark_log.exists():
                message = "the job failed; Spark's own log is %s on %s"
                log.error(message, spark_log, socket.gethostname())  # noqa: TRY400
            answer = failure(error)
        else:
            spark_log.unlink(missing_ok=True)
    _tell(job, {**answer, "measured": measured})
    return 0 if answer["status"] == "success" else 1


class Parent:
    """The parent process."""

    def __init__(self) -> None:
        self._pid = os.getppid()

    def is_alive(self) -> bool:
        """Whether the process still has this parent; an orphan gets another parent."""
        return os.getppid() == self._pid

    def watch(self) -> None:
        """Send this process SIGTERM soon after its parent has ended."""
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def _watch(self) -> None:
        while self.is_alive():
            threading.Event().wait(_SECONDS_BETWEEN_LOOKS)
        log.error("parent process %d is gone, the job ends", self._pid)
        os.kill(os.getpid(), signal.SIGTERM)


def _listen_for_sigterm() -> None:
    """End the job when SIGTERM arrives, whichever thread the system interrupts.

    Python calls the handler in the main thread. A main thread that waits for a lock or a future goes on
    waiting if another thread was interrupted, or if it began to wait right after the signal.
    """
    signal.signal(signal.SIGTERM, _terminate)
    arrived, arrives = socket.socketpair()
    arrives.setblocking(False)
    signal.set_wakeup_fd(arrives.detach(), warn_on_full_buffer=False)
    again = threading.Thread(
        target=_interrupt_again, args=(arrived, threading.get_ident()), name="sigterm", daemon=True
    )
    again.start()


def _interrupt_again(arrived: socket.socket, main_thread: int) -> None:
    while arrived.recv(1)[0] != signal.SIGTERM:
        pass
    while signal.getsignal(signal.SIGTERM) is _terminate:
        signal.pthread_kill(main_thread, signal.SIGTERM)
        threading.Event().wait(_SECONDS_BETWEEN_LOOKS)


def _terminate(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the rollback that follows.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # With a call that never ends, such as one to a server that is gone, the process would remain as an
    # orphan.
    last_word = threading.Timer(_SECONDS_TO_ROLL_BACK, os.kill, (os.getpid(), signal.SIGKILL))
    last_word.daemon = True
    last_word.start()
    raise Terminated(f"the job was ended by {signal.Signals(number).name}; its write was rolled back")


def _read(specification: str) -> AnyJob:
    jobs = {each.kind_of_job: each for each in _JOBS}
    return jobs.get(json.loads(specification).get("job"), IngestJob).from_json(specification)


def _run(job: AnyJob, parent: Parent) -> dict[str, Any] | None:
    if isinstance(job, ClusteringJob):
        return _cluster(job, parent)
    if isinstance(job, CompactionJob):
        return _compact(job, parent)
    if isinstance(job, IndexJob):
        return _build_index(job, parent)
    return _ingest(job, parent)


# A job imports only what it needs: without Spark, other imports would take half of its time.


def _cluster(job: ClusteringJob, parent: Parent) -> dict[str, Any] | None:
    from airflow_provider.services.clustering import earlier_clustering, run_clustering, write_group

    table = HudiTable.open(job.location, job.storage_options)
    if (earlier := earlier_clustering(job, table)) is not None:
        return earlier
    if job.engine == ARROW:
        return run_clustering(job, table, write_group, is_alive=parent.is_alive)
    from airflow_provider.spark.clustering import cluster

    with _session(job) as spark:
        return cluster(spark, job, is_alive=parent.is_alive)


def _compact(job: CompactionJob, parent: Parent) -> dict[str, Any] | None:
    from airflow_provider.services.table_compaction import earlier_compaction, run_compaction_job

    table = HudiTable.open(job.location, job.storage_options)
    if job.engine == ARROW:
        return run_compaction_job(job, table, is_alive=parent.is_alive)
    if (earlier := earlier_compaction(job, table)) is not None:  # then no session need start
        return earlier
    from airflow_provider.spark.compaction import compact_by_job

    with _session(job) as spark:
        return compact_by_job(spark, job, is_alive=parent.is_alive)


def _build_index(job: IndexJob, parent: Parent) -> dict[str, Any] | None:
    from airflow_provider.indexing import completed_indexing, run_index

    table = HudiTable.open(job.location, job.storage_options)
    if (done := completed_indexing(table, job.instant)) is not None:
        return done.to_dict()
    if job.engine == ARROW:
        built = run_index(
            table,
            job.instant,
            settings=job.settings,
            lock=job.open_lock(table),
            operation_key=job.operation_key,
            is_alive=parent.is_alive,
        )
        return None if built is None else built.to_dict()
    from airflow_provider.spark.indexing import build_index

    with _session(job) as spark:
        built = build_index(spark, job, is_alive=parent.is_alive)
        return None if built is None else built.to_dict()


def _ingest(job: IngestJob, parent: Parent) -> dict[str, Any]:
    from airflow_provider.ingestion.one_commit import commit_once

    if job.serves:
        from airflow_provider.spark.job_request import serve

        with ExitStack() as until_the_end:
            return serve(job, lambda: until_the_end.enter_context(_session(job)), is_alive=parent.is_alive)

    def write(job: IngestJob, table: HudiTable) -> dict[str, Any]:
        if job.engine == ARROW:
            from airflow_provider.ingestion.files import write_files

            return write_files(job, table, is_alive=parent.is_alive)
        from airflow_provider.spark.ingestion.ingestion import write_source

        with _session(job) as spark:  # after an earlier commit the session need not start
            return write_source(spark, job, table, is_alive=parent.is_alive)

    return commit_once(job, write)


def _collect_garbage_of_work() -> None:
    """Turn the garbage collector on; it passes over what the modules have made."""
    gc.freeze()
    gc.enable()


@contextmanager
def _session(job: AnyJob) -> Iterator[SparkSession]:
    from airflow_provider.spark.session import job_session, told_when_lost

    began = time.monotonic()
    forget_old_logs()
    gc.disable()  # the session loads most of PySpark
    try:
        spark = job_session(
            f"table-services {job.operation} {job.table_name or job.location}",
            job.spark_conf,
            connect_timeout=job.connect_timeout,
            log_file=spark_log_file(job.job_id),
        )
    finally:
        _collect_garbage_of_work()
    log.info("Spark %s is there after %.1f s", spark.version, time.monotonic() - began)
    try:
        with told_when_lost(spark):
            yield spark
    finally:
        # A session that the connection names by its id belongs to the connection's owner, and other jobs use
        # it too.
        if "session_id=" not in os.environ.get("SPARK_REMOTE", ""):
            spark.stop()


def _tell(job: AnyJob, answer: Mapping[str, Any]) -> None:
    print(f"{RESULT_PREFIX}{json.dumps(answer)}", flush=True)  # noqa: T201 - the operator listens
    try:
        write_answer(Storage(job.location, job.storage_options), job.job_id, dict(answer))
    except (OSError, TableServiceError) as error:
        log.warning("the answer of job %s could not be stored: %s", job.job_id, error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
