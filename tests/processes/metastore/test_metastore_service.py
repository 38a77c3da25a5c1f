"""The metastore's service: processes, signals, TLS, passwords; and pyiceberg's Hive catalog on it."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from puresasl.client import SASLClient
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.types import DoubleType
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TClient
from thriftpy2.transport import TBufferedTransportFactory, TSaslClientTransport, TSocket, TTransportException

from airflow_provider.concurrency import HeartbeatSettings, WriteSettings, begin_write, pending_instants
from airflow_provider.exceptions import MetastoreError, MetastoreUnavailableError
from airflow_provider.locks.owner import describe_owner
from airflow_provider.metastore import Column, LockComponent, LockState, LockType, TxnState, open_metastore
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.sasl import password_digest
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups.view import FileGroupId
from airflow_provider.table.timeline.metadata import WriteStat
from tests.processes.metastore.metastore_service import MetastoreService, metastore_service
from tests.processes.servers import free_port, interrupt_other_threads, postgresql


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('metastore')}/metastore.db"
    else:
        with postgresql() as server:
            yield server.url


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[MetastoreService]:
    """Two processes, each a replica, on one port."""
    folder = tmp_path_factory.mktemp("service")
    options = ("--processes", "2", "--replica", "r")
    with metastore_service(folder, url, *options, port=free_port()) as running:
        yield running


@pytest.fixture
def catalog(service: MetastoreService, tmp_path: Path) -> HiveCatalog:
    return HiveCatalog("hive", uri=service.uri, warehouse=f"file://{tmp_path}")


class TestIceberg:
    """pyiceberg's own catalog, without changes."""

    SCHEMA = pa.schema([("id", pa.int64()), ("dest", pa.string())])

    def test_create_append_read_rename_drop(self, catalog: HiveCatalog, tmp_path: Path) -> None:
        catalog.create_namespace("bergs", {"location": f"file://{tmp_path}/bergs", "comment": "cold"})
        assert "bergs" in [name for (name,) in catalog.list_namespaces()]
        assert catalog.load_namespace_properties("bergs")["comment"] == "cold"
        table = catalog.create_table("bergs.flights", self.SCHEMA)
        table.append(pa.table({"id": [1, 2], "dest": ["IAH", "MIA"]}, self.SCHEMA))
        table.append(pa.table({"id": [3], "dest": ["BQN"]}, self.SCHEMA))
        read = catalog.load_table("bergs.flights").scan().to_arrow()
        assert sorted(read["id"].to_pylist()) == [1, 2, 3]
        assert catalog.list_tables("bergs") == [("bergs", "flights")]
        with table.update_schema() as update:
            update.add_column("fare", DoubleType())
        catalog.rename_table("bergs.flights", "bergs.trips")
        assert len(catalog.load_table("bergs.trips").scan().to_arrow()) == 3
        assert [field.name for field in catalog.load_table("bergs.trips").schema().fields][-1] == "fare"
        catalog.drop_table("bergs.trips")
        with pytest.raises(NoSuchTableError):
            catalog.load_table("bergs.trips")
        catalog.drop_namespace("bergs")
        assert "bergs" not in [name for (name,) in catalog.list_namespaces()]

    def test_concurrent_commits_are_kept_apart_by_its_lock(
        self, catalog: HiveCatalog, service: MetastoreService, tmp_path: Path, url: str
    ) -> None:
        catalog.create_namespace("race", {"location": f"file://{tmp_path}/race"})
        catalog.create_table("race.t", self.SCHEMA)
        committed: list[int] = []
        gave_way = 0
        count = threading.Lock()

        def append(writer: int) -> None:
            nonlocal gave_way
            own = HiveCatalog("hive", uri=service.uri, **{"lock-check-min-wait-time": "0.01"})
            for number in range(2):
                row = writer * 100 + number
                while True:
                    try:
                        own.load_table("race.t").append(pa.table({"id": [row], "dest": ["X"]}, self.SCHEMA))
                    except CommitFailedException:
                        with count:
                            gave_way += 1
                        continue
                    with count:
                        committed.append(row)
                    break

        threads = [threading.Thread(target=append, args=(writer,)) for writer in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(500)
        table = catalog.load_table("race.t")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(committed)
        assert len(committed) == 6
        assert len(table.snapshots()) == 6
        metastore = open_metastore(url)
        assert metastore.show_locks() == []
        metastore.close()


class TestProcesses:
    def test_connections_reach_both_and_see_each_others_work(
        self, service: MetastoreService, url: str
    ) -> None:
        clients = [ThriftMetastore(service.uri) for _ in range(16)]
        table = LockComponent(LockType.EXCLUSIVE, "lake", "locked")
        held = clients[0].lock([table], "me", "here")
        assert held.state is LockState.ACQUIRED
        waiting = [client.lock([table], "you", "there") for client in clients[1:]]
        assert {one.state for one in waiting} == {LockState.WAITING}
        clients[0].unlock(held.lock_id)
        for client, one in zip(clients[1:], waiting, strict=True):
            assert client.check_lock(one.lock_id) is LockState.ACQUIRED
            client.unlock(one.lock_id)
        for client in clients:
            client.close()
        with closing(open_metastore(url)) as metastore:
            assert {one.name for one in metastore.consumers()} == {"r-1", "r-2"}

    @pytest.mark.parametrize(("options", "is_open"), [((), False), (("--host", "0.0.0.0"), True)])
    def test_it_listens_on_all_interfaces_only_if_told_to(
        self, tmp_path: Path, options: tuple[str, ...], is_open: bool
    ) -> None:
        """127.0.0.2 is this machine, too; only a server that listens on all addresses answers there."""
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options) as running:
            found = []
            for host in ("127.0.0.1", "127.0.0.2"):
                with socket.socket() as probe:
                    found.append(probe.connect_ex((host, running.port)) == 0)
            assert found == [True, is_open]

    @pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (1, 2), (2, 1)])
    def test_a_second_service_cannot_share_the_port_and_its_clients(
        self, tmp_path: Path, first: int, second: int
    ) -> None:
        ours, theirs = (f"sqlite:///{tmp_path}/{name}.db" for name in ("ours", "theirs"))
        options = ("--processes", str(first))
        with (
            metastore_service(tmp_path / "first", ours, *options, port=free_port()) as service,
            pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{service.port}"),
            metastore_service(tmp_path / "second", theirs, "--processes", str(second), port=service.port),
        ):
            pass

    def test_sigterm_ends_it_cleanly_with_clients_connected(self, tmp_path: Path) -> None:
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db") as running:
            client = ThriftMetastore(running.uri)
            assert client.list_databases() == ["default"]
            assert running.stop() == 0
            with pytest.raises(MetastoreUnavailableError):
                client.list_databases()
            assert "Traceback" not in running.log.read_text()

    def test_sigterm_ends_it_whichever_thread_it_interrupts(self, tmp_path: Path) -> None:
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db") as running:
            interrupt_other_threads(psutil.Process(running.process.pid))
            assert running.process.wait(120) == 0

    def test_all_end_when_one_is_killed(self, tmp_path: Path) -> None:
        options = ("--processes", "2")
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options, port=free_port()) as running:
            children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text()
            # The last process is the service's; the one before is multiprocessing's own.
            os.kill(int(children.split()[-1]), signal.SIGKILL)
            assert running.process.wait(300) == 1
            assert "ended by itself" in running.log.read_text()
            with pytest.raises(MetastoreUnavailableError):
                ThriftMetastore(running.uri).list_databases()


class TestRecovery:
    def test_a_timed_out_transaction_ends_as_its_timeline_says(self, tmp_path: Path) -> None:
        """The writer has committed on the timeline, and died before it ended its transaction."""
        url, location = f"sqlite:///{tmp_path}/m.db", str(tmp_path / "trips")
        table = HudiTable.create(
            location, name="trips", schema=pa.schema([("id", pa.int64())]), record_key=["id"]
        )
        metastore = open_metastore(url)
        metastore.create_table("default", "trips", location=location, schema=[Column("id", "bigint")])
        txns = {}
        for agent in ("dead after its commit", "dead before its commit"):
            txns[agent] = metastore.open_txn("me", "here", agent=describe_owner(agent))
            metastore.allocate_table_write_id(txns[agent], "default", "trips")
            writer = begin_write(
                table,
                operation="INSERT",
                operation_key=agent,
                settings=WriteSettings(heartbeat=HeartbeatSettings(60)),
            )
            writer.plan([FileGroupId("", agent)])
            path = f"{agent}_0-0-0_{writer.instant}.parquet"
            table.storage.put(path, b"rows")
            if agent == "dead after its commit":
                writer.commit([WriteStat(agent, "", path)])
        options = ("--txn-timeout", "0.1", "--housekeeping-interval", "0.1", "--processes", "2")
        with metastore_service(tmp_path, url, *options, port=free_port()):
            until = time.monotonic() + 300
            while any(metastore.get_txn(one).event_id is None for one in txns.values()):
                assert time.monotonic() < until
                time.sleep(0.05)
        assert {agent: metastore.get_txn(one).state for agent, one in txns.items()} == {
            "dead after its commit": TxnState.COMMITTED,
            "dead before its commit": TxnState.ABORTED,
        }
        assert pending_instants(table) == []
        metastore.close()


class TestSecrets:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        """A file with a key and a certificate of this host."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        file = tmp_path / "server.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file

    def test_tls_and_clients_with_certificates(self, tmp_path: Path, certificate: Path) -> None:
        options = ("--tls-certificate", str(certificate), "--tls-client-ca", str(certificate))
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options) as running:

            def connect(context: ssl.SSLContext) -> Any:
                return make_client(
                    hive.ThriftHiveMetastore,
                    "127.0.0.1",
                    running.port,
                    timeout=10_000,
                    ssl_context=context,
                )

            trusting = ssl.create_default_context(cafile=str(certificate))
            trusting.load_cert_chain(str(certificate))
            client = connect(trusting)
            assert client.get_all_databases() == ["default"]
            client.close()
            url = f"{running.uri}?tls=on&tls_ca={certificate}"
            with closing(ThriftMetastore(f"{url}&tls_certificate={certificate}")) as ours:
                assert ours.list_databases() == ["default"]
                assert ours.current_event_id() == 0
            with pytest.raises(MetastoreUnavailableError), closing(ThriftMetastore(url)) as ours:
                ours.list_databases()  # the client has no certificate
            untrusting = f"{running.uri}?tls=on&tls_certificate={certificate}"
            with pytest.raises(MetastoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
                ThriftMetastore(untrusting).list_databases()
            nameless = ssl.create_default_context(cafile=str(certificate))
            with pytest.raises((ssl.SSLError, TTransportException, OSError)):
                connect(nameless).get_all_databases()
            with pytest.raises(MetastoreUnavailableError):
                ThriftMetastore(running.uri).list_databases()  # the client uses no TLS

    def test_a_password_within_tls(self, tmp_path: Path, certificate: Path) -> None:
        users = tmp_path / "users"
        users.write_text(f"ana@lake:{password_digest('a b:/?%')}\n")
        options = ("--users", str(users), "--tls-certificate", str(certificate))
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options) as running:
            place = f"ana%40lake:a%20b%3A%2F%3F%25@127.0.0.1:{running.port}"
            with closing(open_metastore(f"thrift://{place}?tls=on&tls_ca={certificate}")) as ours:
                assert ours.list_databases() == ["default"]

    def test_passwords_by_sasl(self, tmp_path: Path) -> None:
        users = tmp_path / "users"
        users.write_text(f"ana:{password_digest('geheim-7')}\n")
        options = ("--users", str(users))
        with metastore_service(tmp_path, f"sqlite:///{tmp_path}/m.db", *options) as running:
            client, transport = _sasl_client(running.port, "ana", "geheim-7")
            assert client.get_all_databases() == ["default"]
            assert client.get_all_databases() == ["default"]
            transport.close()
            for user, password in (("ana", "geheim-8"), ("bob", "geheim-7"), ("", "")):
                with pytest.raises(TTransportException, match="Bad status: 3"):
                    _sasl_client(running.port, user, password)
            with pytest.raises(MetastoreUnavailableError):
                ThriftMetastore(running.uri).list_databases()  # the client uses no SASL
            with closing(ThriftMetastore(f"thrift://ana:geheim-7@127.0.0.1:{running.port}")) as ours:
                assert ours.create_database("lake").name == "lake"
                assert ours.list_databases() == ["default", "lake"]
                assert repr(ours) == f"ThriftMetastore('thrift://ana:***@127.0.0.1:{running.port}')"
            wrong = ThriftMetastore(f"thrift://ana:geheim-8@127.0.0.1:{running.port}")
            with pytest.raises(MetastoreError, match="did not let user 'ana' in") as refused:
                wrong.list_databases()
            assert not refused.value.retryable
            assert "geheim" not in str(refused.value)
            log = running.log.read_text()
            assert "geheim" not in log
            assert "user 'bob' or the password is wrong" in log


class _PureSasl:
    """pure-sasl's client, with the method names that thriftpy2's transport calls."""

    def __init__(self, user: str, password: str) -> None:
        self._client = SASLClient("127.0.0.1", "hive", "PLAIN", username=user, password=password)

    def start(self, mechanism: str) -> tuple[bool, str, bytes]:
        return True, mechanism, self._client.process()

    def encode(self, data: bytes) -> tuple[bool, bytes]:
        return True, data

    def decode(self, data: bytes) -> tuple[bool, bytes]:
        return True, data


def _sasl_client(port: int, user: str, password: str) -> tuple[Any, Any]:
    plain = TBufferedTransportFactory().get_transport(TSocket("127.0.0.1", port, socket_timeout=10_000))
    transport = TSaslClientTransport(lambda: _PureSasl(user, password), "PLAIN", plain)
    try:
        transport.open()
    except TTransportException:
        transport.close()
        raise
    return TClient(hive.ThriftHiveMetastore, TBinaryProtocolFactory().get_protocol(transport)), transport
