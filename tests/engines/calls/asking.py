"""Sends requests to one server, and keeps the answers so that another server's can be compared with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

# Fields that differ on any two servers: times, and numbers that count everything that the server has done.
_TIMES = frozenset(
    [
        "createTime",
        "lastAccessTime",
        "eventTime",
        "lastAnalyzed",
        "startedTime",
        "lastHeartbeatTime",
        "lastheartbeat",
        "acquiredat",
        "txnid",
        "id",
        "lockid",
        "eventId",
        "min_open_txn",
        "txn_high_water_mark",
    ]
)
_CLIENT = ttypes.ClientCapabilities([ttypes.ClientCapability.INSERT_ONLY_TABLES])
# The capabilities of HiveServer2: without them a Hive 4 shows no ACID table.
_PROCESSOR = ["HIVEMANAGEDINSERTWRITE", "HIVEFULLACIDWRITE", "HIVEFULLACIDREAD", "HIVEMANAGEDINSERTREAD"]


class Asking:
    """One server, and its answers.

    :param port: the server's port on the loopback interface.
    :param folder: the folder for locations outside of the warehouse.
    :param warehouse: the server's warehouse.
    """

    def __init__(self, port: int, folder: Path, warehouse: str) -> None:
        self._port, self.warehouse = port, warehouse
        self.outside = f"file:{folder}"
        self.answers: dict[str, Any] = {}
        self.connect()

    def connect(self) -> None:
        """Connect, or connect again."""
        if hasattr(self, "_transport"):
            self._transport.close()
        socket = TSocket("127.0.0.1", self._port)
        socket.setTimeout(60_000)
        self._transport = TBufferedTransport(socket)
        self._transport.open()
        self.client = ThriftHiveMetastore.Client(TBinaryProtocol(self._transport))

    def close(self) -> None:
        self._transport.close()

    def ask(self, method: str, *arguments: Any, name: str | None = None) -> Any:
        """Call a method, keep its answer or the kind of its error, and return the answer (None for an error).

        :param name: the answer's name; when None, the method with its plain arguments.
        """
        if name is None:
            name = f"{method}({', '.join(map(repr, arguments))})"
        return self.told(name, lambda: getattr(self.client, method)(*arguments))

    def told(self, name: str, asked: Callable[[], Any]) -> Any:
        """Keep the result of a function that makes several calls, or the kind of its error."""
        assert name not in self.answers, f"two questions are called {name}"
        try:
            answer = asked()
        except TApplicationException as error:
            self.answers[name] = f"TApplicationException: {error.message}"
        except TTransportException:
            self.answers[name] = "the connection was closed"
            self.connect()
        except TException as error:
            self.answers[name] = type(error).__name__
        else:
            self.answers[name] = self._plain(answer)
            return answer
        return None

    def forget(self, *names: str) -> None:
        """Drop tables, so that later lists do not differ again because one server refused to create them."""
        for name in names:
            with suppress(ttypes.NoSuchObjectException, ttypes.MetaException):
                self.client.drop_table("calls", name, True)

    def table(self, name: str, database: str = "calls", **more: Any) -> Any:
        request = ttypes.GetTableRequest(
            dbName=database,
            tblName=name,
            capabilities=_CLIENT,
            processorCapabilities=_PROCESSOR,
            processorIdentifier="calls",
            **more,
        )
        return self.client.get_table_req(request).table

    def _plain(self, answer: Any) -> Any:
        """Structs as dicts, without unset fields."""
        if hasattr(answer, "thrift_spec"):
            fields = {spec[2]: getattr(answer, spec[2]) for spec in answer.thrift_spec if spec}
            return {
                name: "TIME" if name in _TIMES else self._plain(value)
                for name, value in fields.items()
                if value is not None
            }
        if isinstance(answer, dict):
            return {str(key): self._plain(value) for key, value in answer.items()}
        if isinstance(answer, set | frozenset):
            return sorted(map(self._plain, answer), key=repr)
        if isinstance(answer, list | tuple):
            return [self._plain(value) for value in answer]
        if isinstance(answer, str) and answer.startswith('{"'):
            return self._plain(json.loads(answer))
        if isinstance(answer, str):
            return self._placeless(answer)
        if isinstance(answer, int) and 1_700_000_000 < answer < 2_000_000_000:
            return "TIME"
        return answer

    def _placeless(self, text: str) -> str:
        text = text.replace("file:///", "file:/")
        for place, name in ((self.warehouse, "WAREHOUSE"), (self.outside, "OUTSIDE")):
            text = text.replace(place, name).replace(place.removeprefix("file:"), name)
        return "TIME" if re.fullmatch(r"1[789]\d{8}", text) else text


def storage(
    location: str | None = None, columns: tuple[tuple[str, str], ...] = (("id", "bigint"), ("v", "string"))
) -> Any:
    """A storage descriptor of text files."""
    serde = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    return ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(name, type_, "") for name, type_ in columns],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(None, serde, {"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def table(
    name: str,
    keys: tuple[tuple[str, str], ...] = (),
    *,
    parameters: dict[str, str] | None = None,
    external: bool = False,
    location: str | None = None,
    columns: tuple[tuple[str, str], ...] = (("id", "bigint"), ("v", "string")),
    database: str = "calls",
) -> Any:
    """A table, as a client describes it to create it."""
    parameters = dict(parameters or {}) | ({"EXTERNAL": "TRUE"} if external else {})
    return ttypes.Table(
        tableName=name,
        dbName=database,
        owner="me",
        createTime=0,
        lastAccessTime=0,
        retention=0,
        sd=storage(location, columns),
        partitionKeys=[ttypes.FieldSchema(*key, "") for key in keys],
        parameters=parameters,
        tableType="EXTERNAL_TABLE" if external else "MANAGED_TABLE",
    )


def partition(
    of: str,
    *values: str,
    location: str | None = None,
    parameters: dict[str, str] | None = None,
    database: str = "calls",
) -> Any:
    """A partition, as a client describes it to add it."""
    return ttypes.Partition(
        values=list(values),
        dbName=database,
        tableName=of,
        createTime=0,
        lastAccessTime=0,
        sd=storage(location),
        parameters=dict(parameters or {}),
    )
