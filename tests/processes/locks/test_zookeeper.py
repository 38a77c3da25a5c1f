"""The ZooKeeper lock alone: Curator on the other side, ensembles, networks, TLS, identities."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kazoo.client import KazooClient
from py4j.java_gateway import JavaGateway

from airflow_provider.exceptions import (
    InvalidConnectionError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
)
from airflow_provider.locks import LockProvider, open_lock
from airflow_provider.table.storage.storage import Storage
from tests.processes.locks.conftest import BUSY
from tests.processes.locks.contender import Contender
from tests.processes.locks.curator import Curator
from tests.processes.servers import (
    TcpProxy,
    ZookeeperServer,
    free_port,
    zookeeper,
    zookeeper_ensemble,
)


def zookeeper_lock(root: Path, **options: Any) -> LockProvider:
    return open_lock({"provider": "zookeeper", **options}, Storage(str(root)))


def settle(condition: Any, seconds: float = 300.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def curator(jvm: JavaGateway, zookeeper_server: ZookeeperServer, table: Path) -> Iterator[Curator]:
    curator = Curator(jvm, zookeeper_server.hosts, f"/hudi/locks/{table.name}")
    yield curator
    curator.close()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder with Hudi's sign of a table; the table's name is the lock's key by default, as in JVM Hudi."""
    table = tmp_path / "somewhere" / tmp_path.name.replace("_", "-")
    (table / ".hoodie").mkdir(parents=True)
    (table / ".hoodie/hoodie.properties").write_text(f"hoodie.table.name={table.name}\n")
    return table


def test_curator_keeps_us_out(curator: Curator, zookeeper_server: ZookeeperServer, table: Path) -> None:
    ours = zookeeper_lock(table, hosts=zookeeper_server.hosts, owner="ours")
    assert curator.acquire(60_000)
    holder = ours.holder()
    assert holder is not None
    assert ipaddress.ip_address(holder.owner)  # Curator writes this into its nodes
    with pytest.raises(
        LockTimeoutError, match=f"held by {holder.owner}.*session_timeout_ms later, 60 s by default"
    ):
        ours.acquire(timeout=0.5)
    waiting = threading.Thread(target=ours.acquire, args=(300,))
    waiting.start()
    observer = zookeeper_lock(table, hosts=zookeeper_server.hosts)
    settle(lambda: observer.waiters() == ["ours"])
    assert not ours.is_held()
    curator.mutex.release()
    waiting.join()
    assert ours.is_held()
    assert ours.fencing_token > holder.fencing_token
    ours.release()


def test_we_keep_curator_out_and_it_takes_its_turn(
    curator: Curator, zookeeper_server: ZookeeperServer, table: Path
) -> None:
    first, last = (
        zookeeper_lock(table, hosts=zookeeper_server.hosts, owner=owner) for owner in ("first", "last")
    )
    first.acquire()
    assert not curator.acquire(300)
    turns: list[str] = []

    def jvm_writer() -> None:
        assert curator.acquire(300_000)
        turns.append("curator")
        curator.mutex.release()

    def our_writer() -> None:
        with last:
            turns.append("last")

    writers = []
    for number, work in enumerate((jvm_writer, our_writer), start=1):
        writers.append(threading.Thread(target=work))
        writers[-1].start()
        settle(lambda number=number: len(first.waiters()) == number)
    assert turns == []
    first.release()
    for writer in writers:
        writer.join()
    assert turns == ["curator", "last"]


def test_the_nodes_have_curators_names(zookeeper_server: ZookeeperServer, table: Path) -> None:
    options = {"hosts": zookeeper_server.hosts, "base_path": "/lake/of mine/", "lock_key": "some key"}
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    with zookeeper_lock(table, **options, owner="ours") as lock:
        [node] = client.get_children("/lake/of mine/some key")
        uuid, _, sequence = node.rpartition("-lock-")
        assert len(uuid) == 32
        assert len(sequence) == 10
        data, stat = client.get(f"/lake/of mine/some key/{node}")
        assert data == b"ours"
        assert stat.czxid == lock.fencing_token
        assert stat.ephemeralOwner != 0
    assert client.get_children("/lake/of mine/some key") == []
    client.stop()
    client.close()


def test_no_session_is_left_behind(zookeeper_server: ZookeeperServer, table: Path) -> None:
    client = KazooClient(zookeeper_server.hosts)
    client.start()

    def sessions() -> set[str]:
        return set(re.findall(r"sid=(\w+)", client.command(b"cons")))

    before = sessions()
    holder = zookeeper_lock(table, hosts=zookeeper_server.hosts)
    holder.acquire()
    waiter = zookeeper_lock(table, hosts=zookeeper_server.hosts)
    waiting = threading.Thread(target=pytest.raises, args=(LockTimeoutError, waiter.acquire, 6))
    waiting.start()
    settle(lambda: len(sessions() - before) == 2)
    ours = sessions() - before
    waiting.join()
    holder.release()
    del holder
    settle(lambda: not ours & sessions())
    client.stop()
    client.close()


def test_a_lock_is_held_on_when_the_leader_is_killed(tmp_path: Path, processes: ForkServerContext) -> None:
    with zookeeper_ensemble(tmp_path / "ensemble") as servers:
        config = {
            "provider": "zookeeper",
            "hosts": ",".join(server.hosts for server in servers),
            "lease_seconds": 20,
        }
        holder, waiter = (Contender(processes, config, str(tmp_path), {}) for _ in range(2))
        token = holder.acquire()
        waiter.tell("acquire", 60)
        [leader] = [server for server in servers if server.wait() == "leader"]
        leader.kill()
        settle(holder.is_held)
        holder.release()
        assert waiter.answer() > token
        assert waiter.is_held()
        waiter.kill()
        holder.kill()


def test_who_is_cut_off_loses_the_lock(
    tmp_path: Path, zookeeper_server: ZookeeperServer, processes: ForkServerContext
) -> None:
    proxy = TcpProxy(zookeeper_server.port)
    config = {"provider": "zookeeper", "lease_seconds": 2, "connection_timeout_seconds": 1}
    holder = Contender(processes, {**config, "hosts": f"127.0.0.1:{proxy.port}"}, str(tmp_path), {})
    heir = Contender(processes, {**config, "hosts": zookeeper_server.hosts}, str(tmp_path), {})
    holder.acquire()
    proxy.cut()
    assert not holder.is_held()
    heir.acquire(60)
    proxy.mend()
    assert not holder.is_held()
    with pytest.raises((LockLostError, LockUnavailableError)):
        holder.release()
    assert heir.is_held()
    for contender in (holder, heir):
        contender.kill()
    proxy.close()


def test_a_server_that_was_just_starting_and_never_answers_is_asked_again(
    tmp_path: Path, zookeeper_server: ZookeeperServer
) -> None:
    proxy = TcpProxy(zookeeper_server.port)
    lock = zookeeper_lock(
        tmp_path, hosts=f"127.0.0.1:{proxy.port}", lease_seconds=60, connection_timeout_seconds=16
    )
    with lock:
        proxy.cut()
        proxy.ignore_next()
        proxy.mend()
        assert lock.is_held()
    proxy.close()


@pytest.mark.parametrize("kind", ["drops packets", "accepts and is silent"])
def test_one_bad_server_does_not_use_up_the_time(
    tmp_path: Path, zookeeper_server: ZookeeperServer, kind: str
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as bad, contextlib.ExitStack() as queued:
        if kind == "drops packets":  # Linux does this when the queue of new connections is full
            for _ in range(2):
                client = queued.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(bad.getsockname())
        hosts = f"127.0.0.1:{bad.getsockname()[1]},127.0.0.1:{free_port()},{zookeeper_server.hosts}"
        for _ in range(3):  # kazoo takes the hosts in any order
            lock = zookeeper_lock(tmp_path, hosts=hosts, lease_seconds=30, connection_timeout_seconds=6)
            lock.acquire(timeout=10)
            lock.release()


@pytest.fixture(scope="module")
def sasl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "jaas.conf").write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        'user_hudi="geheim-7" user_other="x"; };'
    )
    properties = {
        "java.security.auth.login.config": str(folder / "jaas.conf"),
        "zookeeper.authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with zookeeper(folder / "data", properties) as server:
        yield server


class TestIdentities:
    """Authentication, and the access rights of the lock's nodes."""

    @pytest.mark.parametrize("scheme", ["digest", "sasl"])
    def test_only_the_creator_gets_at_the_locks(
        self, sasl_server: ZookeeperServer, tmp_path: Path, scheme: str
    ) -> None:
        options = {"hosts": sasl_server.hosts, "base_path": f"/{scheme}", "authentication": scheme}
        ours = zookeeper_lock(
            tmp_path, **options, acl="creator", username="hudi", password="geheim-7", owner="ours"
        )
        again = zookeeper_lock(tmp_path, **options, acl="creator", username="hudi", password="geheim-7")
        with ours:
            assert ours.is_held()
            with pytest.raises(LockTimeoutError, match="held by ours"):
                again.acquire(timeout=0)
        stranger = zookeeper_lock(tmp_path, hosts=sasl_server.hosts, base_path=f"/{scheme}")
        other = zookeeper_lock(tmp_path, **options, username="other", password="x")
        for lock, named in ((stranger, "a client that does not authenticate"), (other, "other")):
            with pytest.raises(LockUnavailableError, match=f"denies access to {named}"):
                lock.acquire(timeout=5)

    def test_a_wrong_password_is_an_error_at_once(self, sasl_server: ZookeeperServer, tmp_path: Path) -> None:
        lock = zookeeper_lock(
            tmp_path,
            hosts=sasl_server.hosts,
            authentication="sasl",
            username="hudi",
            password="geheim-8",
        )
        begun = time.monotonic()
        with pytest.raises(LockUnavailableError, match="refuses the username or the password") as raised:
            lock.acquire()
        assert time.monotonic() - begun < BUSY
        assert "geheim-8" not in str(raised.value)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority_key, authority = _certificate(folder, "authority", None)
    for name in ("server", "client"):
        _certificate(folder, name, (authority_key, authority))
    _certificate(folder, "strange authority", None)
    return folder


@pytest.fixture(scope="module")
def tls_server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[tuple[ZookeeperServer, str]]:
    port = free_port()
    server = ZookeeperServer(
        tmp_path_factory.mktemp("tls"),
        {
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(certificates / "server.both.pem"),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(certificates / "authority.pem"),
            "ssl.trustStore.type": "PEM",
        },
    )
    server.start()
    server.wait()
    yield server, f"127.0.0.1:{port}"
    server.kill()


class TestTls:
    """A server that asks for the client's certificate, too."""

    def test_both_sides_are_verified(
        self, tls_server: tuple[ZookeeperServer, str], certificates: Path, tmp_path: Path
    ) -> None:
        _, hosts = tls_server
        client = {
            "tls_certificate": str(certificates / "client.pem"),
            "tls_key": str(certificates / "client.key"),
            "tls_key_password": "geheim-7",
        }
        trusted = {"tls_ca": str(certificates / "authority.pem")}
        quick = {"hosts": hosts, "connection_timeout_seconds": 1}
        with zookeeper_lock(tmp_path, hosts=hosts, tls="on", **trusted, **client) as lock:
            assert lock.is_held()
        with zookeeper_lock(tmp_path, hosts=hosts, tls="unverified", **client) as lock:
            assert lock.is_held()
        strange = {"tls_ca": str(certificates / "strange authority.pem")}
        with pytest.raises(LockUnavailableError, match=r"(?i)certificate.verify.failed"):
            zookeeper_lock(tmp_path, **quick, tls="on", **strange, **client).acquire()
        with pytest.raises(LockUnavailableError):  # the server refuses a client without a certificate
            zookeeper_lock(tmp_path, **quick, tls="on", **trusted).acquire()
        with pytest.raises(LockUnavailableError):  # the client uses no TLS
            zookeeper_lock(tmp_path, **quick).acquire()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'hosts': must be host:port"),
        ({"hosts": "zk:port"}, "option 'hosts': must be host:port"),
        ({"hosts": "zk", "acl": "nobody"}, "option 'acl': 'nobody' is not known; known: open, creator"),
        ({"hosts": "zk", "acl": "creator"}, "'creator' needs authentication"),
        ({"hosts": "zk", "authentication": "sasl", "username": "u"}, "needs username and password"),
        ({"hosts": "zk", "tls_ca": "/ca.pem"}, "option 'tls_ca': needs 'tls', which is 'off'"),
        ({"hosts": "zk", "tls": "on", "tls_ca": "/no/ca.pem"}, "a file that is not there: /no/ca.pem"),
        ({"hosts": "zk", "tls": "on", "tls_key": "/key.pem"}, "goes together with 'tls_key'"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConnectionError, match=message):
        zookeeper_lock(tmp_path, **options)


def _certificate(
    folder: Path, name: str, issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Make key and certificate of an authority, or of a server or client at 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
    )
    certificate = builder.sign(issuer[0] if issuer else key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"geheim-7"),
    )
    (folder / f"{name}.pem").write_bytes(pem)
    (folder / f"{name}.key").write_bytes(encrypted)
    (folder / f"{name}.both.pem").write_bytes(plain + pem)
    return key, certificate
