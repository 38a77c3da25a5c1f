"""The entry of a job: ``python -m airflow_provider.spark.job SPECIFICATION``, or by spark-submit.

The process ends with its parent, the operator or the JVM of spark-submit. Otherwise it would stay behind as a
writer whose heartbeat does not stop: Spark's Python driver outlives a killed JVM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

# As the file of spark-submit, this folder leads the path, and its modules would hide others'.
_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [entry for entry in sys.path if entry != _HERE]

from airflow_provider import metrics  # noqa: E402
from airflow_provider.exceptions import TableServiceError  # noqa: E402
from airflow_provider.indexing import IndexJob  # noqa: E402
from airflow_provider.ingestion.ingest_job import IngestJob  # noqa: E402
from airflow_provider.services.clustering import ClusteringJob  # noqa: E402
from airflow_provider.spark.job_answer import RESULT_PREFIX, failure, success, write_answer  # noqa: E402
from airflow_provider.table.hudi_table import HudiTable  # noqa: E402
from airflow_provider.table.storage import Storage  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0


AnyJob = IngestJob | ClusteringJob | IndexJob


class Terminated(BaseException):
    """The job was told to end; not an :class:`Exception`, so that nothing takes it for a failure."""


def main(arguments: list[str]) -> int:
    """Run the job that a file describes, and leave its answer.

    The answer goes to a line of the standard output and to a file in the table's storage; see
    :mod:`airflow_provider.spark.job_answer`.

    :param arguments: path of the specification, from :meth:`~airflow_provider.jobs.TableJob.to_json`.
    :return: exit code: 0 when the job committed, or had nothing to do, 1 when it did not.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if len(arguments) != 1:
        print("usage: python -m airflow_provider.spark.job SPECIFICATION_FILE", file=sys.stderr)  # noqa: T201
        return 2
    parent = Parent()
    parent.watch()
    signal.signal(signal.SIGTERM, _terminate)
    job = _read(Path(arguments[0]).read_text())
    with metrics.collected() as measured:
        try:
            answer = success(_run(job, parent))
        except Terminated as error:
            answer = failure(error)
        except Exception as error:  # whatever it is, the operator has to know
            if not isinstance(error, TableServiceError):
                log.exception("job %s failed", job.job_id)
            answer = failure(error)
    _tell(job, {**answer, "measured": measured})
    return 0 if answer["status"] == "success" else 1


class Parent:
    """The process that started this one."""

    def __init__(self) -> None:
        self._pid = os.getppid()

    def is_alive(self) -> bool:
        """Whether it still is this one's parent; an orphan gets another."""
        return os.getppid() == self._pid

    def watch(self) -> None:
        """End this process, by SIGTERM, soon after its parent."""
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def _watch(self) -> None:
        while self.is_alive():
            threading.Event().wait(_SECONDS_BETWEEN_LOOKS)
        log.error("parent process %d is gone, the job ends", self._pid)
        os.kill(os.getpid(), signal.SIGTERM)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Once is enough: the rollback that follows must not be interrupted by a second one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated(f"the job was ended by {signal.Signals(number).name}; its write was rolled back")


def _read(specification: str) -> AnyJob:
    jobs: dict[str, type[AnyJob]] = {each.kind_of_job: each for each in (IngestJob, ClusteringJob, IndexJob)}
    return jobs.get(json.loads(specification).get("job"), IngestJob).from_json(specification)


def _run(job: AnyJob, parent: Parent) -> dict[str, Any] | None:
    from airflow_provider.indexing import completed_indexing
    from airflow_provider.ingestion.one_commit import commit_once
    from airflow_provider.services.clustering.clustering import earlier_clustering
    from airflow_provider.spark.clustering import cluster
    from airflow_provider.spark.indexing import build_index
    from airflow_provider.spark.ingestion.ingestion import write_source
    from airflow_provider.spark.job_request import serve

    if isinstance(job, ClusteringJob):
        table = HudiTable.open(job.location, job.storage_options)
        if (earlier := earlier_clustering(job, table)) is not None:
            return earlier
        with _session(job) as spark:
            return cluster(spark, job, is_alive=parent.is_alive)
    if isinstance(job, IndexJob):
        table = HudiTable.open(job.location, job.storage_options)
        if (done := completed_indexing(table, job.instant)) is not None:
            return done.to_dict()
        with _session(job) as spark:
            built = build_index(spark, job, is_alive=parent.is_alive)
            return None if built is None else built.to_dict()
    if job.serves:
        with ExitStack() as until_the_end:
            return serve(job, lambda: until_the_end.enter_context(_session(job)), is_alive=parent.is_alive)

    def write(job: IngestJob, table: HudiTable) -> dict[str, Any]:
        with _session(job) as spark:  # whose start an earlier commit spares
            return write_source(spark, job, table, is_alive=parent.is_alive)

    return commit_once(job, write)


@contextmanager
def _session(job: AnyJob) -> Iterator[SparkSession]:
    from airflow_provider.spark.session import job_session

    spark = job_session(f"table-services {job.operation} {job.table_name or job.location}", job.spark_conf)
    try:
        yield spark
    finally:
        # A session that was given by its id belongs to the connection's owner, and other jobs use it too.
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
