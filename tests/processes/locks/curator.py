"""JVM Hudi's side of a ZooKeeper lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.java_gateway import GatewayParameters, JavaGateway, JavaObject, launch_gateway

from dags_examples.demo.spark_server import java_environment
from tests.processes.servers import JARS


@contextmanager
def java_gateway() -> Iterator[JavaGateway]:
    """A JVM with the jars that pyspark brings."""
    java_environment()
    port = launch_gateway(classpath=f"{JARS}/*", die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway
    gateway.shutdown()


class Curator:
    """Curator's InterProcessMutex, as JVM Hudi's ZookeeperBasedLockProvider makes it.

    :param hosts: the ensemble's hosts.
    :param path: the lock's path.
    """

    def __init__(self, gateway: JavaGateway, hosts: str, path: str) -> None:
        jvm = gateway.jvm.org.apache.curator
        self._client = jvm.framework.CuratorFrameworkFactory.newClient(hosts, jvm.retry.RetryOneTime(100))
        self._client.start()
        self.mutex: JavaObject = jvm.framework.recipes.locks.InterProcessMutex(self._client, path)
        self._millis = gateway.jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def acquire(self, millis: int) -> bool:
        return bool(self.mutex.acquire(millis, self._millis))

    def close(self) -> None:
        self._client.close()
