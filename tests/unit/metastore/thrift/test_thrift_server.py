"""The promises of Hive's protocol, by our own client and by raw requests."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TApplicationException as ApacheError
from thrift.transport import TTransport
from thrift.transport.TSocket import TSocket as ApacheSocket
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException

from airflow_provider.exceptions import (
    InvalidInputError,
    NoSuchLockError,
    NoSuchTransactionError,
    TransactionAbortedError,
    TransactionOpenError,
)
from airflow_provider.metastore import (
    Column,
    LockComponent,
    LockState,
    LockType,
    PartitionSpec,
)
from airflow_provider.metastore.thrift.client.client import ThriftMetastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.server.serve import ServiceOptions, served
from airflow_provider.metastore.thrift.server.server import MetastoreServer

TABLE = LockComponent(LockType.EXCLUSIVE, "lake", "flights")


@pytest.fixture(params=["database", "replica"])
def server(request: pytest.FixtureRequest, url: str) -> Iterator[MetastoreServer]:
    replica = "r1" if request.param == "replica" else None
    options = ServiceOptions(url, port=0, replica=replica, housekeeping_interval=0.1)
    with served(options) as opened:
        yield opened


@pytest.fixture
def client(server: MetastoreServer) -> Iterator[Any]:
    opened = make_client(hive.ThriftHiveMetastore, "127.0.0.1", server.port, timeout=10_000)
    yield opened
    opened.close()


@pytest.fixture
def ours(server: MetastoreServer) -> Iterator[ThriftMetastore]:
    opened = ThriftMetastore(f"thrift://127.0.0.1:{server.port}")
    yield opened
    opened.close()


def table(name: str = "places", **fields: Any) -> Any:
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema(name="id", type="bigint"), hive.FieldSchema(name="ünïcode", type="string")],
        location=f"/lake/{name}",
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        compressed=False,
        numBuckets=4,
        serdeInfo=hive.SerDeInfo(
            name="s", serializationLib="org.apache.hadoop.hive.serde2.OpenCSVSerde", parameters={"q": "'"}
        ),
        bucketCols=["id"],
        sortCols=[hive.Order(col="id", order=1)],
        parameters={"a": "b"},
        storedAsSubDirectories=False,
    )
    described = {
        "dbName": "lake",
        "tableName": name,
        "owner": "me",
        "createTime": 1_700_000_000,
        "sd": storage,
        "partitionKeys": [hive.FieldSchema(name="year", type="int", comment="a year")],
        "parameters": {"comment": "hällo"},
        "tableType": "MANAGED_TABLE",
    }
    return hive.Table(**(described | fields))


class TestConnections:
    def test_unknown_method_is_an_answer_and_the_connection_lives_on(
        self, server: MetastoreServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        # pyiceberg's client, which knows all of Hive's methods.
        transport = TTransport.TBufferedTransport(ApacheSocket("127.0.0.1", server.port))
        transport.open()
        client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
        with pytest.raises(ApacheError, match="Invalid method name: 'cache_file_metadata'") as raised:
            client.cache_file_metadata(None)
        assert raised.value.type == ApacheError.UNKNOWN_METHOD
        assert "cache_file_metadata" in caplog.text
        assert client.getVersion() == "4.1.0"
        transport.close()

    def test_undeclared_error_is_an_answer_and_the_connection_lives_on(
        self, client: Any, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        # open_txns declares no exception at all.
        with pytest.raises(TApplicationException, match="Invalid input for number of txns: -1") as raised:
            client.open_txns(hive.OpenTxnRequest(num_txns=-1, user="me", hostname="here"))
        assert raised.value.type == TApplicationException.INTERNAL_ERROR
        # A bug, not an error that the package raises: an invalid lock type.
        component = hive.LockComponent(type=77, level=1, dbname="lake")
        with (
            caplog.at_level(logging.ERROR),
            pytest.raises(TApplicationException, match="KeyError in lock; the metastore's log has more"),
        ):
            client.lock(hive.LockRequest(component=[component], user="me", hostname="here"))
        assert "lock failed" in caplog.text
        assert client.getVersion() == "4.1.0"

    def test_shutdown_stops_nothing(self, client: Any, ours: ThriftMetastore) -> None:
        client.shutdown()
        assert client.getStatus() == hive.fb_status.ALIVE
        assert ours.list_databases() == ["default", "lake"]

    def test_a_configuration_key_without_a_default_is_refused_by_an_exception_of_hives(
        self, client: Any
    ) -> None:
        assert client.get_config_value("hive.metastore.port", "9083") == "9083"
        assert client.get_config_value("metastore.txn.timeout", None) == "300000ms"
        with pytest.raises(hive.ConfigValSecurityException, match=r"'hive\.metastore\.port'"):
            client.get_config_value("hive.metastore.port", None)
        assert client.get_all_databases()

    def test_a_port_is_listened_on_by_one_service(self, server: MetastoreServer, url: str) -> None:
        with (
            pytest.raises(InvalidInputError, match=f"cannot listen on 127.0.0.1:{server.port}"),
            served(ServiceOptions(url, port=server.port), housekeeping=False),
        ):
            pass

    def test_a_stranger_is_hung_up_on(self, server: MetastoreServer, ours: ThriftMetastore) -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(100) == b""
        assert "Hive Metastore 4.1.0" in ours.ping()

    def test_idle_connection_is_kept(self, client: Any, server: MetastoreServer) -> None:
        assert client.getName()
        [connection] = server._open
        assert connection.gettimeout() is None
        assert client.set_ugi("me", ["us"]) == ["me", "us"]


class TestCatalog:
    def test_a_table_comes_back_as_it_was_created(self, client: Any) -> None:
        given = table(viewOriginalText="sélect 1")
        client.create_table(given)
        found = client.get_table("lake", "places")
        assert found.id > 0
        # Hive adds this.
        parameters = {"comment": "hällo", "transient_lastDdlTime": found.parameters["transient_lastDdlTime"]}
        expected = table(viewOriginalText="sélect 1", id=found.id, catName="hive", parameters=parameters)
        expected.rewriteEnabled, expected.writeId, expected.sd.storedAsSubDirectories = False, 0, False
        expected.sd.skewedInfo = hive.SkewedInfo([], [], {})
        assert found == expected
        assert client.get_table_req(hive.GetTableRequest(dbName="LAKE", tblName="Places")).table == found
        assert client.get_table_objects_by_name("lake", ["places", "nowhere"]) == [found]
        assert [one.name for one in client.get_schema("lake", "places")] == ["id", "ünïcode", "year"]

    def test_a_table_of_ours_is_described_as_hudis_sync_would(self, client: Any, url: str) -> None:
        found = client.get_table("lake", "flights")
        assert found.sd.inputFormat is not None
        assert found.sd.serdeInfo.parameters["path"] == "/lake/flights"
        assert [one.name for one in found.partitionKeys] == ["year", "month"]

    def test_errors_are_those_that_the_method_declares(self, client: Any) -> None:
        with pytest.raises(hive.NoSuchObjectException, match=r"lake\.nowhere does not exist"):
            client.get_table("lake", "nowhere")
        with pytest.raises(hive.UnknownTableException):
            client.get_fields("lake", "nowhere")
        with pytest.raises(hive.AlreadyExistsException):
            client.create_database(hive.Database(name="lake"))
        with pytest.raises(hive.InvalidOperationException, match="is not empty"):
            client.drop_database("lake", False, False)
        with pytest.raises(hive.InvalidObjectException, match=r"'a\.b' cannot name a table"):
            client.create_table(table("a.b"))
        with pytest.raises(hive.InvalidObjectException, match="--warehouse"):
            client.create_table(table(sd=hive.StorageDescriptor(cols=[])))
        assert client.get_all_tables("nowhere") == []

    def test_names_by_pattern(self, client: Any) -> None:
        client.create_table(table("fleet"))
        assert client.get_tables("lake", "fl*") == ["fleet", "flights"]
        assert client.get_tables("lake", "FLEET|x") == ["fleet"]
        assert client.get_databases("l*") == ["lake"]
        metas = client.get_table_meta("*", "*", ["MANAGED_TABLE"])
        assert [(one.dbName, one.tableName) for one in metas] == [("lake", "fleet"), ("lake", "flights")]
        # As Hive 4 asks for all of them.
        assert client.get_tables("lake", ".*") == client.get_all_tables("lake")
        assert client.get_databases(".*") == client.get_all_databases()
        assert client.get_tables("lake", "fl.et") == ["fleet"]

    def test_a_partition_keeps_the_storage_descriptor_that_it_was_registered_with(self, client: Any) -> None:
        client.create_table(table())
        of_table = client.get_table("lake", "places")
        for year in ("2013", "2014"):
            struct = hive.Partition(
                values=[year], dbName="lake", tableName="places", sd=of_table.sd, parameters={}
            )
            struct.sd = hive.StorageDescriptor(**{**vars(of_table.sd), "location": f"/lake/places/{year}"})
            client.add_partition(struct)
        changed = client.get_table("lake", "places")
        changed.sd.serdeInfo.parameters = {"q": "|"}
        changed.sd.cols.append(hive.FieldSchema(name="more", type="int"))
        client.alter_table("lake", "places", changed)
        # Its files did not change.
        old = client.get_partition("lake", "places", ["2013"])
        assert old.sd.serdeInfo.parameters == {"q": "'"}
        assert [one.name for one in old.sd.cols] == ["id", "ünïcode"]
        assert old.sd.location == "/lake/places/2013"
        # One partition changes alone.
        old.sd.serdeInfo.parameters, old.sd.inputFormat = {"q": "#"}, "org.apache.hadoop.mapred.SequenceFile"
        client.alter_partitions("lake", "places", [old])
        found = {one.values[0]: one.sd for one in client.get_partitions("lake", "places", -1)}
        assert found["2013"] == old.sd
        assert found["2014"].serdeInfo.parameters == {"q": "'"}
        changed.sd.cols.append(hive.FieldSchema(name="last", type="int"))
        client.alter_table_with_cascade("lake", "places", changed, True)
        found = {one.values[0]: one.sd for one in client.get_partitions("lake", "places", -1)}
        assert [one.name for one in found["2014"].cols] == ["id", "ünïcode", "more", "last"]
        assert found["2013"].inputFormat == "org.apache.hadoop.mapred.SequenceFile"

    def test_a_partition_of_a_table_that_no_client_described_follows_it(
        self, client: Any, ours: ThriftMetastore
    ) -> None:
        ours.add_partitions("lake", "flights", [PartitionSpec(("2013", "1"), "/p")])
        ours.alter_table("lake", "flights", schema=[Column("other", "int")])
        [found] = client.get_partitions("lake", "flights", -1)
        assert [one.name for one in found.sd.cols] == ["other"]

    def test_partition_keys_cannot_be_changed(self, client: Any) -> None:
        client.create_table(table())
        changed = client.get_table("lake", "places")
        for keys in (
            [],
            [hive.FieldSchema(name="year", type="string")],
            [hive.FieldSchema(name="y", type="int")],
        ):
            changed.partitionKeys = keys
            with pytest.raises(hive.InvalidOperationException, match="partition keys cannot be changed"):
                client.alter_table("lake", "places", changed)
        changed.partitionKeys = [hive.FieldSchema(name="Year", type="INT", comment="another comment")]
        client.alter_table("lake", "places", changed)

    @pytest.mark.parametrize("values", [[], ["2013", "1"]])
    def test_values_that_do_not_fit_the_partition_keys_are_refused_by_name(
        self, client: Any, values: list[str]
    ) -> None:
        client.create_table(table())
        said = r"table lake\.places: partition .* has . values, the table has 1 partition keys \['year'\]"
        with pytest.raises(hive.InvalidObjectException, match=said):
            client.add_partition(hive.Partition(values=values, dbName="lake", tableName="places"))

    def test_a_table_that_is_named_twice_is_answered_once(self, client: Any) -> None:
        names = ["flights", "nowhere", "FLIGHTS", "flights"]
        request = hive.GetTablesRequest(dbName="lake", tblNames=names)
        found = client.get_table_objects_by_name_req(request).tables
        assert [one.tableName for one in found] == ["flights"]

    def test_a_name_pattern_is_matched_in_linear_time(self, client: Any) -> None:
        """With a matcher that backtracks this test does not end."""
        name = "a" * 100
        client.create_table(table(name))
        assert client.get_tables("lake", "*a" * 30 + "*b") == []
        assert client.get_tables("lake", "*a" * 30 + "*") == [name]

    def test_alter_and_rename_at_once(self, client: Any) -> None:
        client.create_table(table())
        changed = client.get_table("lake", "places")
        changed.tableName, changed.owner, changed.sd.numBuckets = "spots", "you", 9
        client.alter_table_with_environment_context("lake", "places", changed, hive.EnvironmentContext())
        assert client.get_table("lake", "spots") == changed
        assert client.get_tables("lake", "places") == []

    def test_compare_and_set(self, client: Any) -> None:
        client.create_table(table(parameters={"metadata_location": "v1"}))
        wanted = client.get_table("lake", "places")
        wanted.parameters = {"metadata_location": "v2"}
        guard = {"expected_parameter_key": "metadata_location", "expected_parameter_value": "v1"}
        context = hive.EnvironmentContext(properties=guard)
        client.alter_table_with_environment_context("lake", "places", wanted, context)
        with pytest.raises(hive.MetaException, match="The table has been modified"):
            client.alter_table_with_environment_context("lake", "places", wanted, context)

    def test_a_change_of_a_managed_table_takes_a_write_id(self, client: Any) -> None:
        client.create_table(table())
        changed = client.get_table("lake", "places")
        changed.parameters = {"x": "y"}
        client.alter_table("lake", "places", changed)
        request = hive.GetValidWriteIdsRequest(fullTableNames=["lake.places", "lake.nowhere"])
        places, nowhere = client.get_valid_write_ids(request).tblValidWriteIds
        assert (places.writeIdHighWaterMark, places.invalidWriteIds) == (1, [])
        assert nowhere.writeIdHighWaterMark == 0

    def test_functions(self, client: Any) -> None:
        uri = hive.ResourceUri(resourceType=hive.ResourceType.JAR, uri="s3://b/f.jar")
        function = hive.Function(
            functionName="f", dbName="lake", className="org.F", ownerName="me", resourceUris=[uri]
        )
        client.create_function(function)
        found = client.get_function("lake", "F")
        assert (found.className, found.resourceUris) == ("org.F", [uri])
        assert client.get_functions("lake", "*") == ["f"]
        assert [one.functionName for one in client.get_all_functions().functions] == ["f"]
        client.drop_function("lake", "f")
        with pytest.raises(hive.NoSuchObjectException):
            client.get_function("lake", "f")


class TestPartitions:
    @pytest.fixture
    def partitioned(self, client: Any) -> Any:
        client.create_table(table())
        parts = [
            hive.Partition(values=[year], dbName="lake", tableName="places", sd=None, parameters={})
            for year in ("2012", "2013", "__HIVE_DEFAULT_PARTITION__")
        ]
        client.add_partitions_req(
            hive.AddPartitionsRequest(dbName="lake", tblName="places", parts=parts, ifNotExists=False)
        )
        return client

    def test_names_places_and_formats(self, partitioned: Any) -> None:
        names = partitioned.get_partition_names("lake", "places", -1)
        assert sorted(names) == ["year=2012", "year=2013", "year=__HIVE_DEFAULT_PARTITION__"]
        one = partitioned.get_partition_by_name("lake", "places", "year=2013")
        assert (one.values, one.sd.location) == (["2013"], "/lake/places/year=2013")
        assert one.sd.serdeInfo == table().sd.serdeInfo
        assert len(partitioned.get_partition_names("lake", "places", 1)) == 1

    def test_filters(self, partitioned: Any) -> None:
        [one] = partitioned.get_partitions_by_filter("lake", "places", "year > 2012", -1)
        assert one.values == ["2013"]
        assert partitioned.get_num_partitions_by_filter("lake", "places", "year <= 2013") == 2
        with pytest.raises(hive.MetaException, match="no partition filter"):
            partitioned.get_partitions_by_filter("lake", "places", "year >", -1)
        [one] = partitioned.get_partitions_ps_with_auth("lake", "places", ["2012"], -1, "me", [])
        assert one.values == ["2012"]
        assert len(partitioned.get_partitions_ps("lake", "places", [""], -1)) == 3
        found = partitioned.get_partitions_by_names("lake", "places", ["year=2013", "year=1999"])
        assert [part.values for part in found] == [["2013"]]

    def test_there_already_alter_and_drop(self, partitioned: Any) -> None:
        one = partitioned.get_partition("lake", "places", ["2013"])
        with pytest.raises(hive.AlreadyExistsException):
            partitioned.add_partition(one)
        one.sd.location, one.parameters = "/elsewhere", {"rows": "1"}
        partitioned.alter_partitions("lake", "places", [one])
        again = partitioned.get_partition("lake", "places", ["2013"])
        assert (again.sd.location, again.parameters) == ("/elsewhere", {"rows": "1"})
        assert partitioned.drop_partition_by_name("lake", "places", "year=2013", False)
        with pytest.raises(hive.NoSuchObjectException):
            partitioned.drop_partition("lake", "places", ["2013"], False)


class TestTransactions:
    def test_open_commit_abort(self, ours: ThriftMetastore) -> None:
        first, second = ours.open_txn("me", "here", agent="dag.task"), ours.open_txn("me", "here")
        assert second == first + 1
        ours.heartbeat_txn(first)
        ours.abort_txn(second)
        snapshot = ours.valid_txn_list()
        assert (snapshot.min_open, snapshot.exceptions, snapshot.aborted) == (first, (1, 2), {second})
        ours.commit_txn(first)
        ours.commit_txn(first)
        assert ours.valid_txn_list().is_valid(first)
        with pytest.raises(TransactionAbortedError, match=f"Transaction txnid:{second} already aborted"):
            ours.heartbeat_txn(second)
        with pytest.raises(NoSuchTransactionError):
            ours.abort_txn(first)

    def test_batch_range_and_info(self, client: Any) -> None:
        ids = client.open_txns(hive.OpenTxnRequest(num_txns=3, user="me", hostname="here")).txn_ids
        client.abort_txns(hive.AbortTxnsRequest(txn_ids=[ids[1], 999]))
        partitions = ("lake", "flights", ["year=2013/month=1"])
        client.add_dynamic_partitions(hive.AddDynamicPartitions(ids[0], 1, *partitions))
        with pytest.raises(hive.TxnAbortedException):
            client.add_dynamic_partitions(hive.AddDynamicPartitions(ids[1], 1, *partitions))
        beaten = client.heartbeat_txn_range(hive.HeartbeatTxnRangeRequest(min=ids[0], max=ids[2] + 1))
        assert (set(beaten.aborted), set(beaten.nosuch)) == ({ids[1]}, {ids[2] + 1})
        infos = client.get_open_txns_info().open_txns
        states = [(one.id, one.state) for one in infos]
        opened, aborted = hive.TxnState.OPEN, hive.TxnState.ABORTED
        assert states == [(ids[0], opened), (ids[1], aborted), (ids[2], opened)]

    def test_write_ids(self, ours: ThriftMetastore, client: Any) -> None:
        txn_id = ours.open_txn("me", "here")
        assert ours.allocate_table_write_id(txn_id, "lake", "flights") == 1
        assert ours.allocate_table_write_id(txn_id, "lake", "flights") == 1
        request = hive.GetValidWriteIdsRequest(fullTableNames=["lake.flights"])
        [ids] = client.get_valid_write_ids(request).tblValidWriteIds
        assert (ids.writeIdHighWaterMark, ids.invalidWriteIds, ids.minOpenWriteId) == (1, [1], 1)
        ours.abort_txn(txn_id)
        [ids] = client.get_valid_write_ids(request).tblValidWriteIds
        assert (ids.invalidWriteIds, ids.abortedBits) == ([1], b"\x01")
        last = hive.MaxAllocatedTableWriteIdRequest(dbName="lake", tableName="flights")
        assert client.get_max_allocated_table_write_id(last).maxWriteId == 1

    def test_get_table_req_by_write_ids_and_id(self, client: Any, ours: ThriftMetastore) -> None:
        found = client.get_table("lake", "flights")
        request = hive.GetTableRequest(
            dbName="lake",
            tblName="flights",
            validWriteIdList="lake.flights:0:9223372036854775807::",
            id=found.id,
        )
        assert client.get_table_req(request).table == found

    def test_locks(self, ours: ThriftMetastore) -> None:
        txn_id = ours.open_txn("me", "here")
        held = ours.lock([TABLE], "me", "here", agent="dag.task", txn_id=txn_id)
        assert held.state is LockState.ACQUIRED
        [info] = ours.show_locks("lake", "flights", txn_id=txn_id)
        assert (info.component, info.agent, info.txn_id) == (TABLE, "dag.task", txn_id)
        waiting = ours.lock([TABLE], "you", "there")
        assert waiting.state is LockState.WAITING
        with pytest.raises(TransactionOpenError):
            ours.unlock(held.lock_id)
        ours.commit_txn(txn_id)
        assert ours.check_lock(waiting.lock_id) is LockState.ACQUIRED
        ours.heartbeat_lock(waiting.lock_id)
        ours.unlock(waiting.lock_id)
        with pytest.raises(NoSuchLockError):
            ours.check_lock(waiting.lock_id)

    def test_notifications(self, client: Any) -> None:
        client.create_table(table())
        last = client.get_current_notificationEventId().eventId
        events = client.get_next_notification(hive.NotificationEventRequest(lastEvent=0)).events
        assert [one.eventId for one in events] == list(range(1, last + 1))
        assert json.loads(events[-1].message)["table"] == "places"
        request = hive.NotificationEventRequest(
            lastEvent=0, maxEvents=1, dbName="lake", eventTypeSkipList=["CREATE_DATABASE"]
        )
        [one] = client.get_next_notification(request).events
        assert (one.eventType, one.tableName) == ("CREATE_TABLE", "flights")
        count = hive.NotificationEventsCountRequest(fromEventId=0, dbName="lake", tableNames=["places"])
        assert client.get_notification_events_count(count).eventsCount == 1
        data = hive.FireEventRequestData(insertData=hive.InsertEventRequestData(filesAdded=["/f"]))
        fired = hive.FireEventRequest(successful=True, data=data, dbName="lake", tableName="flights")
        assert client.fire_listener_event(fired).eventIds[0] > last


def test_a_silent_transaction_is_aborted(url: str) -> None:
    with served(ServiceOptions(url, port=0, txn_timeout=0.2, housekeeping_interval=0.05)) as server:
        ours = ThriftMetastore(f"thrift://127.0.0.1:{server.port}")
        txn_id = ours.open_txn("me", "here")
        ours.lock([TABLE], "me", "here")
        until = time.monotonic() + 300
        while ours.show_locks() or not ours.valid_txn_list().is_aborted(txn_id):
            assert time.monotonic() < until
            time.sleep(0.05)
        with pytest.raises(TransactionAbortedError):
            ours.commit_txn(txn_id)
        ours.close()
