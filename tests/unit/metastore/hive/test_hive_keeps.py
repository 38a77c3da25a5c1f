"""Objects of Hive's clients beside tables, by Hive's own definition: constraints, owners, statistics."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes

from airflow_provider.metastore import CachedStore, Column, Metastore
from tests.unit.metastore.hive.hives_client import client, flights, mart, newer, server, storage

__all__ = ["client", "flights", "mart", "newer", "server"]


class TestConstraints:
    @pytest.fixture
    def orders(self, client: Any, by_database: Metastore) -> None:
        columns = [Column("id", "int"), Column("line", "int"), Column("flight", "bigint")]
        by_database.create_table("lake", "orders", location="/o", schema=columns)
        client.add_primary_key(
            ttypes.AddPrimaryKeyRequest(
                [
                    ttypes.SQLPrimaryKey("lake", "orders", "line", 2, "pk", False, False, True),
                    ttypes.SQLPrimaryKey("lake", "orders", "ID", 1, "pk", False, False, True),
                ]
            )
        )
        key = ttypes.SQLForeignKey("lake", "flights", "id", "lake", "orders", "flight", 1, 0, 0, "fk", "pk")
        client.add_foreign_key(ttypes.AddForeignKeyRequest([key]))

    def test_of_every_kind_come_back(self, client: Any, orders: None) -> None:
        place = {"table_db": "lake", "table_name": "orders", "column_name": "line"}
        client.add_unique_constraint(
            ttypes.AddUniqueConstraintRequest([ttypes.SQLUniqueConstraint(**place, key_seq=1)])
        )
        client.add_not_null_constraint(
            ttypes.AddNotNullConstraintRequest([ttypes.SQLNotNullConstraint(**place, nn_name="nn")])
        )
        client.add_default_constraint(
            ttypes.AddDefaultConstraintRequest(
                [ttypes.SQLDefaultConstraint(**place, default_value="1", dc_name="dc")]
            )
        )
        client.add_check_constraint(
            ttypes.AddCheckConstraintRequest(
                [ttypes.SQLCheckConstraint(**place, check_expression="line > 0", dc_name="cc")]
            )
        )
        keys = client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "orders")).primaryKeys
        assert [(one.column_name, one.key_seq, one.pk_name, one.rely_cstr) for one in keys] == [
            ("id", 1, "pk", True),
            ("line", 2, "pk", True),
        ]
        asked = ("hive", "LAKE", "Orders")
        [unique] = client.get_unique_constraints(ttypes.UniqueConstraintsRequest(*asked)).uniqueConstraints
        assert unique.uk_name.startswith("unique_")
        [found] = client.get_not_null_constraints(ttypes.NotNullConstraintsRequest(*asked)).notNullConstraints
        assert found.nn_name == "nn"
        [found] = client.get_default_constraints(ttypes.DefaultConstraintsRequest(*asked)).defaultConstraints
        assert (found.default_value, found.dc_name) == ("1", "dc")
        [found] = client.get_check_constraints(ttypes.CheckConstraintsRequest(*asked)).checkConstraints
        assert (found.check_expression, found.table_name, found.catName) == ("line > 0", "orders", "hive")
        request = ttypes.AllTableConstraintsRequest("lake", "orders", "hive")
        everything = client.get_all_table_constraints(request).allTableConstraints
        assert [len(one) for one in vars(everything).values()] == [2, 1, 1, 1, 1, 1]

    @pytest.mark.parametrize(
        "asked",
        [
            (None, None, "lake", "orders"),
            ("lake", "flights", None, None),
            ("lake", "flights", "lake", "orders"),
        ],
    )
    def test_foreign_keys_are_found_from_both_sides(
        self, client: Any, orders: None, asked: tuple[str | None, ...]
    ) -> None:
        [key] = client.get_foreign_keys(ttypes.ForeignKeysRequest(*asked)).foreignKeys
        assert (key.fktable_name, key.fkcolumn_name) == ("orders", "flight")
        assert (key.pktable_db, key.pktable_name, key.pkcolumn_name) == ("lake", "flights", "id")
        assert client.get_foreign_keys(ttypes.ForeignKeysRequest("lake", "orders")).foreignKeys == []

    def test_follow_their_tables(self, client: Any, by_database: Metastore, orders: None) -> None:
        by_database.rename_table("lake", "flights", "lake", "routes")
        by_database.rename_table("lake", "orders", "lake", "sales")
        [key] = client.get_foreign_keys(ttypes.ForeignKeysRequest("lake", "routes")).foreignKeys
        assert (key.fktable_name, key.pktable_name) == ("sales", "routes")
        by_database.drop_table("lake", "routes")
        assert (
            client.get_foreign_keys(ttypes.ForeignKeysRequest(None, None, "lake", "sales")).foreignKeys == []
        )
        assert len(client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "sales")).primaryKeys) == 2

    def test_are_dropped_by_name(self, client: Any, orders: None) -> None:
        client.drop_constraint(ttypes.DropConstraintRequest("lake", "orders", "PK"))
        assert client.get_primary_keys(ttypes.PrimaryKeysRequest("lake", "orders")).primaryKeys == []
        with pytest.raises(ttypes.NoSuchObjectException, match="no constraint 'pk'"):
            client.drop_constraint(ttypes.DropConstraintRequest("lake", "orders", "pk"))

    def test_that_cannot_be_are_refused(self, client: Any, orders: None) -> None:
        def add(*columns: Any) -> None:
            client.add_primary_key(ttypes.AddPrimaryKeyRequest(list(columns)))

        with pytest.raises(ttypes.MetaException, match="has a primary key already"):
            add(ttypes.SQLPrimaryKey("lake", "orders", "flight", 1, "other"))
        with pytest.raises(ttypes.MetaException, match="column 'nope', which it does not have"):
            add(ttypes.SQLPrimaryKey("lake", "flights", "nope", 1, "other"))
        with pytest.raises(ttypes.NoSuchObjectException):
            add(ttypes.SQLPrimaryKey("lake", "nowhere", "id", 1, "other"))

    def test_are_created_with_their_table_or_neither(self, client: Any, mart: Path) -> None:
        def created(name: str) -> Any:
            return ttypes.Table(dbName="mart", tableName=name, sd=storage(), parameters={})

        good = [ttypes.SQLPrimaryKey("mart", "k", "id", 1, "pk")]
        client.create_table_with_constraints(created("k"), good, [], [], [], [], [])
        request = ttypes.CreateTableRequest(
            table=created("m"),
            notNullConstraints=[ttypes.SQLNotNullConstraint(None, "mart", "m", "id", "nn")],
        )
        client.create_table_req(request)
        for name, kind in (("k", "primaryKeys"), ("m", "notNullConstraints")):
            asked = ttypes.AllTableConstraintsRequest("mart", name, "hive")
            told = client.get_all_table_constraints(asked).allTableConstraints
            assert [one.column_name for one in getattr(told, kind)] == ["id"]
        wrong = [ttypes.SQLPrimaryKey("mart", "l", "nope", 1, "pk")]
        with pytest.raises(ttypes.InvalidObjectException, match="'nope'"):
            client.create_table_with_constraints(created("l"), wrong, [], [], [], [], [])
        assert client.get_all_tables("mart") == ["a", "b", "k", "m"]
        assert not (mart / "l").exists()


class TestDatabases:
    def test_an_owner_is_kept(self, client: Any, by_database: Metastore) -> None:
        client.create_database(ttypes.Database(name="mart", ownerName="ann", ownerType=2))
        found = client.get_database("mart")
        assert (found.ownerName, found.ownerType, found.catalogName) == ("ann", 2, "hive")
        found.ownerName, found.ownerType = "bob", 1
        client.alter_database("mart", found)
        found = by_database.get_database("mart")
        assert (found.owner, found.owner_type) == ("bob", 1)
        assert '"6": {"str": "bob"}' in json.dumps(
            json.loads(by_database.next_events(0)[-1].message["dbObjAfterJson"])
        )

    def test_a_metastore_has_one_name_for_good(self, client: Any, by_database: Metastore) -> None:
        told = client.get_metastore_db_uuid()
        assert uuid.UUID(told)
        by_database.drop_table("lake", "flights")
        assert client.get_metastore_db_uuid() == told


class TestStatistics:
    @staticmethod
    def told(month: str | None, low: int, high: int, nulls: int) -> Any:
        long = ttypes.LongColumnStatsData(lowValue=low, highValue=high, numNulls=nulls, numDVs=high - low)
        data = ttypes.ColumnStatisticsData(longStats=long)
        name = None if month is None else f"year=2013/month={month}"
        place = ttypes.ColumnStatisticsDesc(month is None, "lake", "flights", name)
        return ttypes.ColumnStatistics(place, [ttypes.ColumnStatisticsObj("id", "bigint", data)])

    def test_of_partitions_together(self, client: Any, flights: list[str]) -> None:
        client.update_partition_column_statistics(self.told("1", 5, 9, 1))
        client.update_partition_column_statistics(self.told("2", -3, 4, 2))
        request = ttypes.PartitionsStatsRequest("lake", "flights", ["id", "dest"], flights)
        answer = client.get_aggr_stats_for(request)
        assert (answer.partsFound, [one.colName for one in answer.colStats]) == (0, ["id"])
        request.colNames = ["id"]
        answer = client.get_aggr_stats_for(request)
        of_id = answer.colStats[0].statsData.longStats
        assert (answer.partsFound, of_id.lowValue, of_id.highValue) == (2, -3, 9)
        assert (of_id.numNulls, of_id.numDVs) == (3, 7)

    def test_are_told_as_hive_tells_them(
        self, client: Any, by_database: Metastore, r1: CachedStore, flights: list[str]
    ) -> None:
        before = by_database.current_event_id()
        client.update_table_column_statistics(self.told(None, 5, 9, 1))
        request = ttypes.SetPartitionsStatsRequest([self.told("1", 5, 9, 1)], writeId=7)
        client.update_partition_column_statistics_req(request)
        of_table, of_partition = by_database.next_events(before)
        assert (of_table.event_type, of_table.table) == ("UPDATE_TBL_COL_STAT_EVENT", "flights")
        struct = json.loads(of_table.message["colStatsJson"])
        assert struct["2"]["lst"][2]["3"]["rec"]["2"]["rec"]["1"] == {"i64": 5}
        assert of_partition.event_type == "UPDATE_PART_COL_STAT_EVENT"
        told = of_partition.message
        assert (told["writeId"], told["partVals"], told["database"]) == (7, ["2013", "1"], "lake")
        # A replica skips these events.
        r1.catch_up()
        assert r1.statistics().event_id == by_database.current_event_id()

    def test_of_old_and_new_rows_together(self, client: Any) -> None:
        for low, high in ((5, 9), (1, 6)):
            request = ttypes.SetPartitionsStatsRequest([self.told(None, low, high, 1)], needMerge=True)
            assert client.set_aggr_stats_for(request)
        found = client.get_table_column_statistics("lake", "flights", "id").statsObj[0].statsData.longStats
        assert (found.lowValue, found.highValue, found.numNulls) == (1, 9, 2)
