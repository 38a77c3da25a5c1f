"""Asking the manager of a Spark cluster for the state of a driver that runs there."""

from __future__ import annotations

import abc
import logging
import re
from typing import TYPE_CHECKING, Any, ClassVar

import requests
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

if TYPE_CHECKING:
    from airflow.sdk import Connection

log = logging.getLogger(__name__)

_SECONDS_TO_ANSWER = 30.0


class SparkCluster(abc.ABC):
    """The manager of a Spark cluster, which knows the drivers that spark-submit has left there.

    :param connection: of type ``spark``.
    :cvar submitting: Spark's configuration with which spark-submit ends once the driver is submitted.
    :cvar following: Spark's configuration with which spark-submit stays until the driver has ended.
    """

    submitting: ClassVar[dict[str, str]]
    following: ClassVar[dict[str, str]] = {}

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @abc.abstractmethod
    def state(self, submission: str) -> tuple[str, bool]:
        """The state of a driver, in the manager's word, and whether the driver has ended.

        :param submission: the id that the manager gave to the driver.
        :raises OSError: when the manager cannot be reached, or does not know the driver.
        """

    @abc.abstractmethod
    def kill(self, submission: str) -> None:
        """End a driver.

        :param submission: the id that the manager gave to the driver.
        :raises OSError: when the manager cannot be reached.
        """


class StandaloneCluster(SparkCluster):
    """Spark's own manager, by its REST interface (``spark.master.rest.enabled``).

    The states are those of ``org.apache.spark.deploy.master.DriverState``.
    """

    submitting: ClassVar[dict[str, str]] = {"spark.standalone.submit.waitAppCompletion": "false"}
    following: ClassVar[dict[str, str]] = {"spark.standalone.submit.waitAppCompletion": "true"}
    _ends: ClassVar[frozenset[str]] = frozenset({"FINISHED", "KILLED", "FAILED", "ERROR"})

    def state(self, submission: str) -> tuple[str, bool]:
        """See :meth:`SparkCluster.state`."""
        answer = self._ask("GET", f"status/{submission}")
        state = str(answer["driverState"])
        return state, state in self._ends

    def kill(self, submission: str) -> None:
        """See :meth:`SparkCluster.kill`."""
        self._ask("POST", f"kill/{submission}")

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        extra = self._connection.extra_dejson
        scheme, port = extra.get("rest-scheme", "http"), extra.get("rest-port", 6066)
        hosts = re.sub(r"^\w+://", "", self._connection.host or "").split(",")
        failures = []
        for host in hosts:  # of several masters only one leads
            url = f"{scheme}://{host.partition(':')[0]}:{port}/v1/submissions/{path}"
            try:
                answer = requests.request(method, url, timeout=_SECONDS_TO_ANSWER)
                answer.raise_for_status()
                told: dict[str, Any] = answer.json()
            except (requests.RequestException, ValueError) as error:
                failures.append(f"{url}: {error}")
                continue
            if told.get("success"):
                return told
            failures.append(f"{url}: {told.get('message', 'no success')}")
        raise OSError("; ".join(failures))


class YarnCluster(SparkCluster):
    """YARN, by the REST interface of its resource manager, which the connection's extra
    ``yarn_resourcemanager_webapp_address`` names.
    """

    submitting: ClassVar[dict[str, str]] = {"spark.yarn.submit.waitAppCompletion": "false"}
    _ends: ClassVar[frozenset[str]] = frozenset({"SUCCEEDED", "FAILED"})

    def state(self, submission: str) -> tuple[str, bool]:
        """See :meth:`SparkCluster.state`."""
        try:
            state = self._hook().query_yarn_application_status(submission)
        except (requests.RequestException, RuntimeError, KeyError) as error:
            raise OSError(str(error)) from error
        return state, state in self._ends

    def kill(self, submission: str) -> None:
        """See :meth:`SparkCluster.kill`."""
        try:
            self._hook()._kill_yarn_application(submission)
        except (requests.RequestException, RuntimeError) as error:
            raise OSError(str(error)) from error

    def _hook(self) -> SparkSubmitHook:
        known = self._connection

        class Hook(SparkSubmitHook):
            # A triggerer reads connections in its event loop, and this one was read there.
            def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
                return known

        return Hook(conn_id=known.conn_id, deploy_mode="cluster", yarn_track_via_rm_api=True)


def spark_cluster(connection: Connection) -> SparkCluster | None:
    """The manager of the cluster that a connection names.

    :param connection: of type ``spark``.
    :return: None if no manager can be asked for a driver: on Kubernetes, on this machine, and on a YARN whose
        resource manager's address the connection does not name.
    """
    master = connection.host or ""
    if master.startswith("spark://") or (master and "://" not in master and connection.port):
        return StandaloneCluster(connection)
    if master.startswith("yarn") and connection.extra_dejson.get("yarn_resourcemanager_webapp_address"):
        return YarnCluster(connection)
    return None
