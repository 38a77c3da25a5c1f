"""The use of Hudi's options: locks, indexes and tables; their defaults, and their page in docs."""

from collections import ChainMap
from dataclasses import fields, is_dataclass
from inspect import getmro, signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from airflow_provider.exceptions import InvalidInputError, MissingColumnError, UnknownOperationError
from airflow_provider.indexing.options import file_group_count, index_options
from airflow_provider.ingestion import IngestJob, ingest_arrow
from airflow_provider.ingestion.ingest_job import FileSizes
from airflow_provider.locks import LOCK_PROVIDERS, InProcessLockProvider, lock_options
from airflow_provider.services.archival import plan_archival
from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.clustering.clustering_job import ClusteringJob
from airflow_provider.services.clustering.clustering_plan import ClusteringSettings
from airflow_provider.services.compaction_plan import CompactionSettings
from airflow_provider.table.hudi_options import OPTIONS, HudiOptions, IndexOptions, Topic
from airflow_provider.table.hudi_options.reference import reference
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.metadata_table.partitions import MetadataPartition, estimated_file_groups
from tests.unit.table.hudi_options.test_hudi_options import INDEX, ZOOKEEPER

# --- the lock ---------------------------------------------------------------------------------


def test_the_locks_options_make_its_configuration():
    assert HudiOptions.parse(ZOOKEEPER | {"hoodie.write.lock.zookeeper.session_timeout_ms": 45_000}).lock == {
        "provider": "zookeeper",
        "hosts": "zk1,zk2:2182/chroot",
        "base_path": "/locks",
        "lock_key": "flights",
        "lease_seconds": 45.0,
    }
    metastore = {
        "hoodie.write.lock.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "hoodie.write.lock.hivemetastore.uris": "thrift://hms:9083",
        "hoodie.write.lock.hivemetastore.database": "lake",
        "hoodie.write.lock.hivemetastore.table": "flights",
        "hoodie.write.lock.heartbeat_interval_ms": 5000,
        "hoodie.write.lock.wait_time_ms": 60_000,
        "hoodie.write.lock.client.num_retries": 2,
    }
    assert HudiOptions.parse(metastore).lock == {
        "provider": "metastore",
        "url": "thrift://hms:9083",
        "database": "lake",
        "table": "flights",
        "lease_seconds": 15.0,
        "timeout_seconds": 190.0,
    }
    assert HudiOptions().lock == {}


def test_only_a_provider_that_looks_is_told_how_often():
    looks = {"hoodie.write.lock.wait_time_ms_between_retry": 250}
    assert HudiOptions.parse(looks).lock == {"poll_interval_seconds": 0.25}
    assert "poll_interval_seconds" not in HudiOptions.parse(ZOOKEEPER | looks).lock
    storage = {"hoodie.write.lock.provider": "StorageBasedLockProvider"}
    assert HudiOptions.parse(storage | looks).lock["poll_interval_seconds"] == 0.25


@pytest.mark.parametrize(
    "option",
    [each for each in OPTIONS.values() if each.topic is Topic.LOCK and each.argument],
    ids=lambda option: option.key,
)
def test_every_option_of_a_lock_is_one_of_its_provider(option):
    if option.argument == "provider":
        known = {
            f"{name}": option.kind.read(name) for name in option.kind.name.replace("`", "").split(" or ")
        }
        assert set(known.values()) < set(LOCK_PROVIDERS)
    else:
        providers = [option.provider] if option.provider else ["filesystem", "metastore", "storage"]
        assert all(option.argument in lock_options(provider) for provider in providers)


# --- what holds where nobody says anything -----------------------------------------------------


def defaults_of(settings) -> dict[str, Any]:
    """The defaults of a dataclass's fields, and of those of its parts."""
    found = {}
    for each in fields(settings):
        if is_dataclass(each.default_factory):
            found |= defaults_of(each.default_factory)
        else:
            found[each.name] = each.default
    return found


def test_the_defaults_are_those_of_what_the_options_are_for(tmp_path):
    def said(topic, *, provider=""):
        return {
            option.argument: option.default
            for option in OPTIONS.values()
            if option.topic is topic and option.default is not None and option.argument
            and option.provider in ("", provider)
        }  # fmt: skip

    for topic, used in (
        (Topic.WRITING, IngestJob),
        (Topic.HEARTBEAT, IngestJob),
        (Topic.HEARTBEAT, ClusteringJob),
        (Topic.CLUSTERING, ClusteringSettings),
        (Topic.INDEX, CompactionSettings),
    ):
        defaults = defaults_of(used)
        if topic is Topic.WRITING:  # None, because a smaller target bounds it
            assert defaults["small_file_limit"] is None
            defaults["small_file_limit"] = FileSizes().fills_below
        assert said(topic).items() <= defaults.items()
    assert said(Topic.CLEANING)["policy"] == Retention().policy
    for option in (each for each in OPTIONS.values() if each.argument == "retained"):
        policy = option.arguments(option.default)["policy"]
        assert option.default == Retention(policy).retained
    for provider in ("zookeeper", "filesystem", "storage"):
        classes = getmro(resolve_name(LOCK_PROVIDERS[provider]))
        options = ChainMap(*(dict(signature(each.__init__).parameters) for each in classes))
        for name, default in said(Topic.LOCK, provider=provider).items() - {("provider", "filesystem")}:
            assert options[name].default == default, (provider, name)


def test_an_index_has_hudis_defaults():
    options = HudiOptions().index
    assert (options.enabled, options.partitions, options.columns) == (None, (), None)
    assert (options.is_async, options.check_timeout, options.compact_delta_commits) == (False, 900.0, 10)
    assert all(options.file_groups[each] == each.default_file_groups for each in options.file_groups)
    assert options.least_file_groups == MetadataPartition.RECORD_INDEX.default_file_groups
    defaults = signature(estimated_file_groups).parameters
    assert (options.growth, options.file_group_bytes) == (
        defaults["growth"].default,
        defaults["file_group_bytes"].default,
    )


def test_the_options_of_indexes_are_typed():
    found = HudiOptions.parse(
        {
            "hoodie.metadata.index.async": "true",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.metadata.index.column.stats.column.list": "dest, fare",
            "hoodie.metadata.index.column.stats.file.group.count": "3",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.metadata.global.record.level.index.max.filegroup.count": "16",
            "hoodie.metadata.record.index.growth.factor": "1.5",
            "hoodie.metadata.compact.max.delta.commits": "4",
            "hoodie.metadata.index.check.timeout.seconds": "60",
        }
    ).index
    assert isinstance(found, IndexOptions)
    assert found.partitions == (
        MetadataPartition.FILES,
        MetadataPartition.COLUMN_STATS,
        MetadataPartition.RECORD_INDEX,
        MetadataPartition.PARTITION_STATS,
    )
    assert (found.columns, found.file_groups[MetadataPartition.COLUMN_STATS]) == (("dest", "fare"), 3)
    assert (found.least_file_groups, found.most_file_groups, found.growth) == (10, 16, 1.5)
    assert (found.compact_delta_commits, found.check_timeout, found.is_async) == (4, 60.0, True)


def test_partition_stats_follow_column_stats_unless_somebody_says_no():
    stats = {"hoodie.metadata.index.column.stats.enable": "true"}
    without = stats | {"hoodie.metadata.index.partition.stats.enable": "false"}
    assert MetadataPartition.PARTITION_STATS in HudiOptions.parse(stats).index.partitions
    assert MetadataPartition.PARTITION_STATS not in HudiOptions.parse(without).index.partitions


def test_an_index_is_planned_by_the_options_of_its_plan_over_those_of_the_table(tmp_path):
    least, bloom = "hoodie.metadata.record.index.min.filegroup.count", f"{INDEX}bloom.filter.file.group.count"
    table = create(tmp_path, **{least: 3, bloom: 2})
    found = index_options(table, {least: "5"})
    assert file_group_count(MetadataPartition.RECORD_INDEX, 100, found) == 5
    assert file_group_count(MetadataPartition.BLOOM_FILTERS, 100, found) == 2
    assert file_group_count(MetadataPartition.FILES, 100, found) == 1
    with pytest.raises(InvalidInputError, match=r"by hoodie\.metadata\.enable=false, and so no index"):
        index_options(table, {"hoodie.metadata.enable": False})


# --- tables -----------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64()), ("dest", pa.string())])


def create(location, **options):
    return HudiTable.create(
        str(location),
        name="flights",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["dest"],
        hudi_options=options,
    )


def test_a_table_keeps_its_options_under_hudis_names_and_hudi_rs_reads_it(tmp_path):
    given_ = ZOOKEEPER | {
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": "TRUE",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.cleaner.commits.retained": 5,
        "hoodie.keep.min.commits": 6,
        "hoodie.keep.max.commits": 8,
    }
    table = create(tmp_path, **given_)
    opened = HudiTable.open(str(tmp_path))
    assert opened.hudi_options == table.hudi_options == HudiOptions.parse(given_)
    assert opened.config.raw["hoodie.metadata.global.record.level.index.enable"] == "true"
    assert opened.config.raw["hoodie.clean.commits.retained"] == "5"

    lock = InProcessLockProvider(table.location)  # there is no ZooKeeper
    ingest_arrow(opened, pa.table({"id": [1, 2], "dest": ["IAH", "MIA"]}), lock=lock)
    assert sum(batch.num_rows for batch in HudiTableBuilder.from_base_uri(str(tmp_path)).build().read()) == 2
    plan_archival(opened)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hoodie.metadata.enabled": True}, UnknownOperationError),
        ({"hoodie.keep.min.commits": 100}, InvalidInputError),
        ({"hoodie.clustering.plan.strategy.sort.columns": "fare"}, MissingColumnError),
    ],
)
def test_a_table_whose_options_cannot_work_is_not_created(tmp_path, options, error):
    with pytest.raises(error):
        create(tmp_path / "table", **options)
    assert not (tmp_path / "table").exists()


def test_properties_that_others_wrote_are_read_and_what_is_wrong_in_them_is_told(tmp_path):
    create(tmp_path)
    path = tmp_path / ".hoodie" / "hoodie.properties"
    written = path.read_text()
    path.write_text(
        f"{written}hoodie.cleaner.policy=KEEP_LATEST_BY_HOURS\nhoodie.datasource.hive_sync.mode=hms\n"
    )
    found = HudiTable.open(str(tmp_path)).hudi_options
    assert found.to_properties() == {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS"}
    path.write_text(f"{written}hoodie.keep.min.commits=many\n")
    table = HudiTable.open(str(tmp_path))
    assert not table.timeline().commits()
    with pytest.raises(
        InvalidInputError, match=f"table {tmp_path}.*hoodie.keep.min.commits must be: whole number"
    ):
        _ = table.hudi_options


# --- the page ---------------------------------------------------------------------------------


def test_the_page_lists_every_option():
    page = Path(__file__).parents[4] / "docs" / "configuration.md"
    assert reference() in page.read_text(), (
        "make its tables anew: python -m airflow_provider.table.hudi_options.reference"
    )
