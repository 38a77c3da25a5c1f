"""The JVM's ``StorageBasedLockProvider`` on an S3 endpoint; the code runs in the JVM's server.

Hudi's own client of S3 is in ``hudi-aws``, which does not come with Spark's bundle. So the provider, with its
lease and its rules, is the JVM's, and the client that it calls sends the same two requests: ``PutObject``
with ``If-None-Match`` or ``If-Match``, and ``GetObject`` (``S3StorageLockClient``).
"""

from __future__ import annotations

from tests.real_hudi.jvm import Session

_START = """
import builtins, urllib.error, urllib.request
from pyspark.java_gateway import ensure_callback_server_started

ensure_callback_server_started(spark.sparkContext._gateway)
jvm = spark._jvm
hudi = jvm.org.apache.hudi
locks = hudi.client.transaction.lock
nothing = hudi.common.util.Option.empty()
pair = hudi.common.util.collection.Pair.of


# The endpoint of the tests looks at no signature.
SOMEBODY = "AWS4-HMAC-SHA256 Credential=somebody/20260101/eu-central-1/s3/aws4_request, Signature=any"


class Client:
    def send(self, method, headers, data=None):
        headers |= {"Content-Type": "application/json", "Authorization": SOMEBODY}
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read(), answer.headers["ETag"]

    def tryUpsertLockFile(self, new, earlier):
        given = {"If-Match": earlier.get().getVersionId()} if earlier.isPresent() else {"If-None-Match": "*"}
        content = bytes(locks.models.StorageLockFile.toByteArray(new))
        try:
            _, version = self.send("PUT", given, content)
        except urllib.error.HTTPError as error:
            if error.code not in (409, 412):
                return pair(locks.models.LockUpsertResult.UNKNOWN_ERROR, nothing)
            return pair(locks.models.LockUpsertResult.ACQUIRED_BY_OTHERS, nothing)
        file = locks.models.StorageLockFile(new, version)
        return pair(locks.models.LockUpsertResult.SUCCESS, hudi.common.util.Option.of(file))

    def readCurrentLockFile(self):
        try:
            content, version = self.send("GET", {})
        except urllib.error.HTTPError as error:
            kind = "NOT_EXISTS" if error.code == 404 else "UNKNOWN_ERROR"
            return pair(getattr(locks.models.LockGetResult, kind), nothing)
        stream = jvm.java.io.ByteArrayInputStream(bytearray(content))
        file = locks.models.StorageLockFile.createFromStream(stream, version)
        return pair(locks.models.LockGetResult.SUCCESS, hudi.common.util.Option.of(file))

    def readObject(self, path, checks):
        return nothing

    def writeObject(self, path, content):
        return False

    def close(self):
        pass

    class Java:
        implements = ["org.apache.hudi.client.transaction.lock.StorageLockClient"]


class Makes:
    def __init__(self, make):
        self.make = make

    def apply(self, *given):
        return self.make(*given)

    class Java:
        implements = ["org.apache.hudi.common.util.Functions$Function3"]


properties = hudi.common.config.TypedProperties()
properties.setProperty("hoodie.base.path", location)
properties.setProperty("hoodie.write.lock.storage.renew.interval.secs", "1")
properties.setProperty("hoodie.write.lock.storage.validity.timeout.secs", "10")
properties.setProperty("hoodie.write.lock.storage.renew.interval.secs", "1")
heartbeats = locks.models.LockProviderHeartbeatManager
given = jvm.java.util.ArrayList()
given.add("the JVM")
given.add(properties)
given.add(Makes(lambda owner, period, renews: heartbeats(owner, period, renews)))
given.add(Makes(lambda owner, file, options: Client()))
given.add(jvm.org.slf4j.LoggerFactory.getLogger("storage lock"))
given.add(None)
kind = jvm.java.lang.Class.forName("org.apache.hudi.client.transaction.lock.StorageBasedLockProvider")
own = [each for each in kind.getDeclaredConstructors() if len(each.getParameterTypes()) == 6]
[constructor] = own
constructor.setAccessible(True)
builtins.storage_lock = constructor.newInstance(given.toArray())
"""


class LockOfTheJvm:
    """The JVM's lock provider of one table.

    :param hudi: the JVM.
    :param location: the table's URL.
    :param url: of the lock object at the endpoint.
    """

    def __init__(self, hudi: Session, location: str, url: str) -> None:
        self._hudi = hudi
        hudi.run(_START, location=location, url=url)

    def try_lock(self) -> bool:
        """Try once, without waiting."""
        return bool(self._hudi.run("import builtins; result = builtins.storage_lock.tryLock()"))

    def unlock(self) -> None:
        self._hudi.run("import builtins; builtins.storage_lock.unlock()")

    def close(self) -> None:
        self._hudi.run("import builtins; builtins.storage_lock.close()")
