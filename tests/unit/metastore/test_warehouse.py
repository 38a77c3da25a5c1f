"""Folders of managed tables and of their partitions, made, moved and deleted if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.metastore import Metastore, open_metastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.structs import TableStructs
from airflow_provider.metastore.thrift.server.catalog_handler import CatalogHandler
from airflow_provider.metastore.thrift.server.partition_handler import PartitionHandler
from airflow_provider.metastore.thrift.server.reads import CatalogReads
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from tests.unit.metastore.test_thrift_server import table


def test_folders_are_kept_only_if_asked_for(url: str, tmp_path: Path) -> None:
    metastore = open_metastore(url)
    metastore.create_database("sea", f"file:{tmp_path}/sea")
    for manages in (False, True):
        warehouse = Warehouse(None, manages_folders=manages)
        handler = CatalogHandler(CatalogReads(metastore), TableStructs(), warehouse)
        handler.create_table(table("t", dbName="sea", sd=hive.StorageDescriptor(cols=[]), partitionKeys=[]))
        folder = tmp_path / "sea" / "t"
        assert folder.is_dir() == manages
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").write_text("x")
        renamed = TableStructs().of(metastore.get_table("sea", "t"))
        renamed.tableName = "u"
        handler.alter_table("sea", "t", renamed)
        place = tmp_path / "sea" / ("u" if manages else "t")
        assert (place / "data").read_text() == "x"
        handler.drop_table("sea", "u", True)
        assert place.exists() != manages
        if not manages:
            (place / "data").unlink()
            place.rmdir()
    metastore.close()


@pytest.mark.parametrize("manages", [True, False])
def test_a_partitions_folder_goes_with_its_values_only_if_asked_for(
    by_database: Metastore, tmp_path: Path, manages: bool
) -> None:
    by_database.create_database("sea", f"file:{tmp_path}/sea")
    reads, warehouse = CatalogReads(by_database), Warehouse(None, manages_folders=manages)
    of_tables = CatalogHandler(reads, TableStructs(), warehouse)
    of_tables.create_table(table("t", dbName="sea", sd=hive.StorageDescriptor(cols=[])))
    handler = PartitionHandler(reads, TableStructs(), warehouse)
    elsewhere = hive.StorageDescriptor(location=f"{tmp_path}/elsewhere")
    for year, storage in (("2013", None), ("2014", elsewhere)):
        folder = Path(elsewhere.location) if storage else tmp_path / "sea" / "t" / f"year={year}"
        handler.add_partition(hive.Partition(values=[year], dbName="sea", tableName="t", sd=storage))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").write_text(year)
    for year in ("2013", "2014"):
        new = handler.get_partition("sea", "t", [year])
        new.values = [year.replace("20", "21")]
        handler.rename_partition("sea", "t", [year], new)
    places = [Path(one.sd.location.removeprefix("file:")) for one in handler.get_partitions("sea", "t", -1)]
    assert [(place / "data").read_text() for place in places] == ["2013", "2014"]
    first = "year=2113" if manages else "year=2013"
    assert places == [tmp_path / "sea" / "t" / first, tmp_path / "elsewhere"]
