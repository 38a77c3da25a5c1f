"""The server makes, moves and deletes folders of managed tables and their partitions, if options say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider.exceptions import (
    AlreadyExistsError,
    InvalidInputError,
    MetastoreError,
    NoSuchObjectError,
)
from airflow_provider.metastore import Metastore, open_metastore
from airflow_provider.metastore.thrift.protocol.idl import hive
from airflow_provider.metastore.thrift.protocol.structs import TableStructs
from airflow_provider.metastore.thrift.server.handlers import (
    CatalogHandler,
    PartitionHandler,
    PartitionReadHandler,
)
from airflow_provider.metastore.thrift.server.reads import CatalogReads
from airflow_provider.metastore.thrift.server.warehouse import Warehouse
from tests.unit.metastore.thrift.test_thrift_server import table


def test_folders_are_kept_only_if_asked_for(url: str, tmp_path: Path) -> None:
    metastore = open_metastore(url)
    metastore.create_database("sea", f"file:{tmp_path}/sea")
    for manages in (False, True):
        warehouse = Warehouse(f"{tmp_path}/sea", manages_folders=manages)
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
    reads, warehouse = CatalogReads(by_database), Warehouse(f"{tmp_path}/sea", manages_folders=manages)
    of_tables = CatalogHandler(reads, TableStructs(), warehouse)
    of_tables.create_table(table("t", dbName="sea", sd=hive.StorageDescriptor(cols=[])))
    handler = PartitionHandler(reads, TableStructs(), warehouse)
    reader = PartitionReadHandler(reads, TableStructs())
    elsewhere = hive.StorageDescriptor(location=f"{tmp_path}/elsewhere")
    for year, storage in (("2013", None), ("2014", elsewhere)):
        folder = Path(elsewhere.location) if storage else tmp_path / "sea" / "t" / f"year={year}"
        handler.add_partition(hive.Partition(values=[year], dbName="sea", tableName="t", sd=storage))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").write_text(year)
    for year in ("2013", "2014"):
        new = reader.get_partition("sea", "t", [year])
        new.values = [year.replace("20", "21")]
        handler.rename_partition("sea", "t", [year], new)
    there = by_database.get_partitions("sea", "t")
    places = [Path(one.location.removeprefix("file:")) for one in there]
    assert [(place / "data").read_text() for place in places] == ["2013", "2014"]
    first = "year=2113" if manages else "year=2013"
    assert places == [tmp_path / "sea" / "t" / first, tmp_path / "elsewhere"]


def handlers(metastore: Metastore, warehouse: Warehouse) -> tuple[CatalogHandler, PartitionHandler]:
    reads, structs = CatalogReads(metastore), TableStructs()
    return CatalogHandler(reads, structs, warehouse), PartitionHandler(reads, structs, warehouse)


@pytest.fixture
def house(by_database: Metastore, tmp_path: Path) -> tuple[CatalogHandler, PartitionHandler]:
    """A server that manages folders below ``warehouse`` and ``listed``."""
    places = {"managed_locations": [f"file://{tmp_path}/listed"]}
    return handlers(by_database, Warehouse(f"file:{tmp_path}/warehouse", manages_folders=True, **places))


def at(location: str | None) -> Any:
    return hive.StorageDescriptor(cols=[hive.FieldSchema(name="id", type="int")], location=location)


def test_databases_and_external_tables_get_folders(
    house: tuple[CatalogHandler, PartitionHandler], tmp_path: Path
) -> None:
    catalog, _ = house
    catalog.create_database(hive.Database(name="sea"))
    assert (tmp_path / "warehouse" / "sea.db").is_dir()
    catalog.create_database(hive.Database(name="air", locationUri=f"file:{tmp_path}/air"))
    assert (tmp_path / "air").is_dir()
    external = {"tableType": "EXTERNAL_TABLE", "parameters": {"EXTERNAL": "TRUE"}, "partitionKeys": []}
    catalog.create_table(table("e", dbName="sea", sd=at(f"file:{tmp_path}/e"), **external))
    catalog.create_table(table("i", dbName="sea", sd=at(None), **external))
    assert (tmp_path / "e").is_dir()
    catalog.drop_database("sea", True, True)
    # The files of an external table do not belong to the metastore.
    assert (tmp_path / "e").is_dir()
    assert (tmp_path / "warehouse" / "sea.db" / "i").is_dir()
    catalog.drop_database("air", True, True)
    assert (tmp_path / "air").is_dir()
    catalog.create_database(hive.Database(name="sea"))
    (tmp_path / "warehouse" / "sea.db" / "i").rmdir()
    catalog.drop_database("sea", True, False)
    assert not (tmp_path / "warehouse" / "sea.db").exists()


@pytest.mark.parametrize(
    "location",
    [
        "{tmp_path}/victim",
        "file://{tmp_path}/warehouse/../victim",
        "file:{tmp_path}/warehouse/link",
        "{tmp_path}/listed-not",
        "{tmp_path}/warehouse",
        "memory://warehouse/t",
        "zip://x::file://{tmp_path}/warehouse/a.zip",
        "nosuch://x",
    ],
)
def test_a_folder_outside_of_the_listed_locations_is_not_deleted(
    house: tuple[CatalogHandler, PartitionHandler],
    tmp_path: Path,
    location: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog, partitions = house
    for name in ("victim", "listed-not", "warehouse"):
        (tmp_path / name / "keep").mkdir(parents=True)
    (tmp_path / "warehouse" / "link").symlink_to(tmp_path / "victim")
    place = location.format(tmp_path=tmp_path)
    catalog.create_table(table("t", dbName="lake", sd=at(place), partitionKeys=[]))
    catalog.drop_table("lake", "t", True)
    assert f"table lake.t was dropped, and its folder {place} stays" in caplog.text
    catalog.create_table(table("p", dbName="lake", sd=at(f"{tmp_path}/listed/p")))
    partitions.add_partition(hive.Partition(values=["1"], dbName="lake", tableName="p", sd=at(place)))
    partitions.drop_partition("lake", "p", ["1"], True)
    assert f"partition year=1 of table lake.p was dropped, and its folder {place} stays" in caplog.text
    assert all((tmp_path / name / "keep").is_dir() for name in ("victim", "listed-not", "warehouse"))


def test_a_folder_below_a_listed_location_is_deleted(
    house: tuple[CatalogHandler, PartitionHandler], tmp_path: Path
) -> None:
    catalog, partitions = house
    catalog.create_table(table("t", dbName="lake", sd=at(f"file:///{tmp_path}/listed/t")))
    partitions.add_partition(hive.Partition(values=["1"], dbName="lake", tableName="t"))
    assert (tmp_path / "listed" / "t" / "year=1").is_dir()
    partitions.drop_partition("lake", "t", ["1"], True)
    assert not (tmp_path / "listed" / "t" / "year=1").exists()
    catalog.drop_table("lake", "t", True)
    assert not (tmp_path / "listed" / "t").exists()


def test_a_name_that_leads_outside_makes_no_folder(
    house: tuple[CatalogHandler, PartitionHandler], tmp_path: Path
) -> None:
    catalog, _ = house
    with pytest.raises(InvalidInputError, match="cannot name a database"):
        catalog.create_database(hive.Database(name="../evil"))
    with pytest.raises(InvalidInputError, match="cannot name a table"):
        catalog.create_table(table("a b", dbName="lake", sd=at(f"{tmp_path}/warehouse/a b")))
    assert not list(tmp_path.rglob("evil*"))
    assert not (tmp_path / "warehouse" / "a b").exists()


def test_a_folder_that_cannot_be_made_leaves_nothing_registered(
    house: tuple[CatalogHandler, PartitionHandler], by_database: Metastore, tmp_path: Path
) -> None:
    catalog, partitions = house
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MetastoreError, match="cannot be made, so nothing was registered"):
        catalog.create_table(table("t", dbName="lake", sd=at(f"{tmp_path}/file/t")))
    with pytest.raises(MetastoreError, match="cannot be made"):
        catalog.create_database(hive.Database(name="sea", locationUri=f"{tmp_path}/file/sea"))
    catalog.create_table(table("t", dbName="lake", sd=at(f"{tmp_path}/listed/t")))
    bad = hive.Partition(values=["1"], dbName="lake", tableName="t", sd=at(f"{tmp_path}/file/1"))
    with pytest.raises(MetastoreError, match="cannot be made"):
        partitions.add_partition(bad)
    assert by_database.list_databases() == ["default", "lake"]
    assert by_database.get_partitions("lake", "t") == []


def test_an_error_in_deleting_a_folder_is_logged_and_the_drop_succeeds(
    house: tuple[CatalogHandler, PartitionHandler],
    by_database: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog, _ = house
    catalog.create_database(hive.Database(name="sea"))
    for name in ("t", "u"):
        catalog.create_table(table(name, dbName="sea", sd=at(None)))

    def refuse(self: object, path: str, recursive: bool = False) -> None:
        raise PermissionError(13, "denied", path)

    monkeypatch.setattr(LocalFileSystem, "rm", refuse)
    catalog.drop_table("sea", "t", True)
    catalog.drop_database("sea", True, True)
    assert by_database.list_databases() == ["default", "lake"]
    assert caplog.text.count("could not be deleted") == 2


def test_a_folder_that_cannot_move_leaves_the_names_as_they_are(
    house: tuple[CatalogHandler, PartitionHandler],
    by_database: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, partitions = house
    catalog.create_database(hive.Database(name="sea"))
    catalog.create_table(table("t", dbName="sea", sd=at(None)))
    partitions.add_partition(hive.Partition(values=["2013"], dbName="sea", tableName="t"))

    def refuse(self: object, source: str, target: str, **options: object) -> None:
        raise PermissionError(13, "denied", source)

    renamed = TableStructs().of(by_database.get_table("sea", "t"))
    renamed.tableName = "u"
    new = PartitionReadHandler(CatalogReads(by_database), TableStructs()).get_partition("sea", "t", ["2013"])
    new.values = ["2014"]
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "mv", refuse)
        with pytest.raises(MetastoreError, match="cannot be moved"):
            catalog.alter_table("sea", "t", renamed)
        with pytest.raises(MetastoreError, match="cannot be moved"):
            partitions.rename_partition("sea", "t", ["2013"], new)
    assert by_database.list_tables("sea") == ["t"]
    assert by_database.get_partition("sea", "t", ["2013"]).location.endswith("t/year=2013")
    # A commit that fails moves the folder back.
    catalog.create_table(table("u", dbName="sea", sd=at(f"{tmp_path}/elsewhere"), partitionKeys=[]))
    with pytest.raises(AlreadyExistsError):
        catalog.alter_table("sea", "t", renamed)
    assert (tmp_path / "warehouse" / "sea.db" / "t" / "year=2013").is_dir()


def test_folders_are_managed_only_where_an_administrator_says() -> None:
    with pytest.raises(InvalidInputError, match="give --warehouse or --managed-location"):
        Warehouse(None, manages_folders=True)


def test_partitions_are_altered_all_or_none(by_database: Metastore, tmp_path: Path) -> None:
    catalog, partitions = handlers(by_database, Warehouse(None))
    catalog.create_table(table("t", dbName="lake"))
    for year in ("1", "2"):
        partitions.add_partition(hive.Partition(values=[year], dbName="lake", tableName="t"))
    before = by_database.get_partitions("lake", "t")
    events = by_database.current_event_id()
    changed = [
        hive.Partition(values=[year], sd=at(f"/new/{year}"), parameters={"a": "b"})
        for year in ("1", "2", "3")
    ]
    with pytest.raises(NoSuchObjectError):
        partitions.alter_partitions("lake", "t", changed)
    assert by_database.get_partitions("lake", "t") == before
    assert by_database.current_event_id() == events
    partitions.alter_partitions("lake", "t", changed[:2])
    assert [one.location for one in by_database.get_partitions("lake", "t")] == ["/new/1", "/new/2"]
    # One write id for all, in one transaction.
    told = [event.event_type for event in by_database.next_events(events)]
    assert told.count("ALLOC_WRITE_ID") == 1
    assert told.count("ALTER_PARTITION") == 2


def test_hives_java_client_renames_without_a_transaction(
    house: tuple[CatalogHandler, PartitionHandler], by_database: Metastore
) -> None:
    catalog, partitions = house
    catalog.create_database(hive.Database(name="sea"))
    catalog.create_table(table("t", dbName="sea", sd=at(None)))
    new = partitions.add_partition(hive.Partition(values=["2013"], dbName="sea", tableName="t"))
    new.values = ["2014"]
    request = hive.RenamePartitionRequest(
        dbName="sea", tableName="t", partVals=["2013"], newPart=new, txnId=-1
    )
    partitions.rename_partition_req(request)
    assert [one.values for one in by_database.get_partitions("sea", "t")] == [("2014",)]
