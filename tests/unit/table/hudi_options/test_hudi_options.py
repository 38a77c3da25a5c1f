"""Hudi's own options: each is read and written back, and a mistake raises an error that helps."""

import io
import logging

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_provider.exceptions import InvalidInputError, UnknownOperationError
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions, Topic
from airflow_provider.table.hudi_options.registry import BY_ANY_NAME

PROVIDERS = "org.apache.hudi.client.transaction.lock."
ZOOKEEPER = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": f"{PROVIDERS}ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "zk1,zk2:2182/chroot",
    "hoodie.write.lock.zookeeper.port": 2181,
    "hoodie.write.lock.zookeeper.base_path": "/locks",
    "hoodie.write.lock.zookeeper.lock_key": "flights",
}

TEXTS = (
    *("true", "False", "2.5", "id,dest", "/srv/lake", "zk1:2181,zk2:2181/chroot"),
    *(
        "SINGLE_WRITER",
        "optimistic_concurrency_control",
        "LAZY",
        "keep_latest_by_hours",
        "z-order",
        "HILBERT",
        "bucket",
        "SIMPLE",
        "4096",
    ),
    "full",
    *("TIME_ELAPSED", "DayBasedCompactionStrategy,LogFileNumBasedCompactionStrategy"),
    "INSERT_ONLY",
    "AVRO",
    "Asia/Tokyo",
    "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy",
    *("InProcessLockProvider", f"{PROVIDERS}StorageBasedLockProvider"),
)


# --- every known key --------------------------------------------------------------------------


@given(st.integers(2, 65535))
def test_every_known_key_is_read_and_written_back_under_hudis_name_of_today(number):
    for name, option in BY_ANY_NAME.items():
        texts = [text for text in (*TEXTS, str(number)) if _is_read(name, text)]
        assert texts, name
        for text in texts:
            options = HudiOptions.parse({name: text})
            written = options.to_properties()
            assert list(written) == [option.key]
            assert HudiOptions.parse(written) == options
            assert HudiOptions.parse(written).to_properties() == written


def _is_read(name, text):
    try:
        HudiOptions.parse({name: text})
    except InvalidInputError:
        return False
    return True


@st.composite
def typing_errors(draw):
    name = draw(st.sampled_from(sorted(BY_ANY_NAME)))
    at = draw(st.integers(len("hoodie."), len(name) - 2))
    dropped = name[:at] + name[at + 1 :]
    doubled = name[:at] + name[at] + name[at:]
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return name, draw(st.sampled_from([dropped, doubled, swapped]))


@given(typing_errors())
def test_a_typing_error_in_any_known_key_names_the_option_that_was_meant(case):
    name, mistyped = case
    assume(mistyped not in BY_ANY_NAME)
    with pytest.raises(UnknownOperationError, match="is not known here") as raised:
        HudiOptions.parse({mistyped: "geheim-7"})
    assert BY_ANY_NAME[str(raised.value).rpartition(" ")[2]] is BY_ANY_NAME[name]
    assert "geheim-7" not in str(raised.value)


@given(typing_errors())
def test_a_typing_error_in_a_tables_properties_is_warned_of(case):
    name, mistyped = case
    assume(mistyped not in BY_ANY_NAME)
    told = io.StringIO()
    handler, logger = logging.StreamHandler(told), logging.getLogger("airflow_provider.table.hudi_options")
    logger.addHandler(handler)
    try:
        assert HudiOptions.of_properties({mistyped: "geheim-7"}) == HudiOptions()
    finally:
        logger.removeHandler(handler)
    (line,) = told.getvalue().splitlines()
    assert line.startswith(f"property {mistyped} is not known here")
    assert BY_ANY_NAME[line.rpartition(" ")[2]] is BY_ANY_NAME[name]
    assert "geheim-7" not in line


def test_other_properties_of_hudi_are_nobodys_typing_errors(caplog):
    others = ("table.checksum", "clean.max.commits", "metadata.keep.min.commits", "metadata.auto.initialize")
    HudiOptions.of_properties({f"hoodie.{name}": "1" for name in others})
    assert caplog.messages == []


def test_a_key_that_is_like_none_is_told_where_they_are():
    with pytest.raises(UnknownOperationError, match=r"docs/configuration\.md"):
        HudiOptions.parse({"x": 1})


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("hoodie.metadata.enable", "yes", "`true` or `false`, not 'yes'"),
        ("hoodie.clean.commits.retained", "0", "whole number, 1 or more, not '0'"),
        ("hoodie.clean.commits.retained", 2.5, "whole number"),
        ("hoodie.parquet.max.file.size", "120MB", "whole number of bytes"),
        ("hoodie.client.heartbeat.interval_in_ms", -1, "whole number of milliseconds"),
        ("hoodie.metadata.record.index.growth.factor", "nan", "number above 0"),
        ("hoodie.metadata.index.column.stats.column.list", "id,,dest", "names with commas"),
        ("hoodie.metadata.index.column.stats.column.list", ["id", "id"], "each once"),
        ("hoodie.write.lock.zookeeper.port", 65536, "1 to 65535"),
        ("hoodie.write.lock.filesystem.expire", 0.5, "whole number of minutes, 0 or more"),
        ("hoodie.write.lock.provider", f"{PROVIDERS}NoopLockProvider", "ZookeeperBasedLockProvider"),
        ("hoodie.write.concurrency.mode", "PESSIMISTIC", "SINGLE_WRITER"),
        ("hoodie.clean.failed.writes.policy", "EAGER", "`LAZY`"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_what_it_must_be(key, value, told):
    with pytest.raises(InvalidInputError, match=key) as raised:
        HudiOptions.parse({key: value})
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "uris",
    [
        "thrift://ana:geheim-7@hms:9083",
        "postgresql+psycopg://ana:geheim-7@db/hive",
        "thrift://h?password=geheim-7",
        "ana:geheim-7@hms:9083",
        "thrift://hms1:9083,thrift://ana:geheim-7/8@hms2:9083",
    ],
)
def test_a_password_is_refused_and_never_shown(uris):
    with pytest.raises(InvalidInputError, match="without a password") as raised:
        HudiOptions.parse({"hoodie.write.lock.hivemetastore.uris": uris})
    assert "geheim-7" not in str(raised.value)


def test_values_have_our_units_and_names():
    options = HudiOptions.parse(
        {
            "hoodie.client.heartbeat.interval_in_ms": "2500",
            "hoodie.client.heartbeat.tolerable.misses": 3,
            "hoodie.write.num.retries.on.conflict.failures": "4",
            "hoodie.layout.optimize.strategy": "zorder",
            "hoodie.clustering.plan.strategy.sort.columns": ["dest", "carrier"],
            "hoodie.clustering.plan.strategy.partition.selected": "dest=[A],dest=B",
            "hoodie.cleaner.hours.retained": 48,
            "hoodie.keep.max.commits": None,
        }
    )
    assert options.arguments(Topic.HEARTBEAT, Topic.WRITING) == {
        "heartbeat_interval": 2.5,
        "tolerable_misses": 3,
        "on_conflict": "rebase",
        "max_rebases": 4,
    }
    assert options.arguments(Topic.CLUSTERING) == {
        "layout": "z-order",
        "sort_by": ("dest", "carrier"),
        "partitions": ("dest=[[]A]", "dest=B"),
    }
    assert options.arguments(Topic.CLEANING) == {"policy": "KEEP_LATEST_BY_HOURS", "retained": 48}
    assert options.arguments(Topic.ARCHIVAL) == {}


def test_options_that_are_no_mapping_are_refused():
    with pytest.raises(InvalidInputError, match="not be a str"):
        HudiOptions.parse('{"hoodie.metadata.enable": "true"}')


@pytest.mark.parametrize(
    "uris", ["thrift://hms1:9083,thrift://hms2:9083", "thrift://ana@hms:9083?tls=on", "sqlite:////srv/hms.db"]
)
def test_where_a_metastore_is_may_be_said(uris):
    key = "hoodie.write.lock.hivemetastore.uris"
    assert HudiOptions.parse({key: uris}).to_properties() == {key: uris}


# --- contradictions ---------------------------------------------------------------------------

INDEX = "hoodie.metadata.index."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ZOOKEEPER | {"hoodie.write.concurrency.mode": "SINGLE_WRITER"}, "a single writer has no lock"),
        ({"hoodie.write.lock.zookeeper.url": "zk1"}, "there is no hoodie.write.lock.provider"),
        (ZOOKEEPER | {"hoodie.write.lock.storage.validity.timeout.secs": 300}, "StorageBasedLockProvider"),
        (ZOOKEEPER | {"hoodie.write.lock.zookeeper.url": "zk1:1,zk2:2"}, "zookeeper.port=2181"),
        (ZOOKEEPER | {"hoodie.write.lock.zookeeper.port": 2182}, "zk1 in hoodie.write.lock.zookeeper.url"),
        (ZOOKEEPER | {"hoodie.write.lock.zookeeper.port": 2182}, "connects to zk1:2181; write zk1:2182 into"),
        (
            {
                "hoodie.write.lock.provider": "StorageBasedLockProvider",
                "hoodie.write.lock.storage.validity.timeout.secs": 299,
                "hoodie.write.lock.storage.renew.interval.secs": 30,
            },
            "ten renewals",
        ),
        (
            {"hoodie.metadata.enable": False, f"{INDEX}bloom.filter.enable": True},
            f"{INDEX}bloom.filter.enable",
        ),
        ({"hoodie.metadata.enable": False, f"{INDEX}async": True}, "nothing to build"),
        ({f"{INDEX}column.stats.column.list": "id"}, f"{INDEX}column.stats.enable=true"),
        ({f"{INDEX}partition.stats.enable": True}, f"{INDEX}column.stats.enable=true"),
        ({"hoodie.keep.min.commits": 30, "hoodie.keep.max.commits": 30}, "=30 must be below hoodie.keep.max"),
        (
            {
                "hoodie.metadata.record.index.min.filegroup.count": 5,
                "hoodie.metadata.record.index.max.filegroup.count": 4,
            },
            "must be at most",
        ),
        (
            {"hoodie.clean.policy": "KEEP_LATEST_COMMITS", "hoodie.clean.hours.retained": 2},
            "leave out the one",
        ),
        ({"hoodie.clean.commits.retained": 2, "hoodie.clean.hours.retained": 2}, "say which one"),
    ],
)
def test_what_contradicts_itself_is_told(options, told):
    with pytest.raises(InvalidInputError) as raised:
        HudiOptions.parse(options).check()
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        ZOOKEEPER,
        ZOOKEEPER | {"hoodie.write.lock.zookeeper.url": "zk1:2182", "hoodie.write.lock.zookeeper.port": 2182},
        {"hoodie.write.concurrency.mode": "SINGLE_WRITER"},
        {"hoodie.metadata.enable": False, f"{INDEX}column.stats.enable": "false"},
        {
            "hoodie.metadata.enable": True,
            f"{INDEX}column.stats.enable": True,
            f"{INDEX}column.stats.column.list": "a",
        },
        {"hoodie.cleaner.policy": "keep_latest_by_hours", "hoodie.clean.hours.retained": 2},
    ],
)
def test_what_goes_together_is_left_alone(options):
    HudiOptions.parse(options).check(with_defaults=True)


def test_two_names_of_one_option_must_say_the_same():
    new, old = "hoodie.metadata.global.record.level.index.enable", "hoodie.metadata.record.index.enable"
    with pytest.raises(InvalidInputError, match=f"{new} and {old} are two names of one option"):
        HudiOptions.parse({new: "true", old: "false"})
    assert HudiOptions.parse({new: "true", old: True}).to_properties() == {new: "true"}


def test_defaults_hold_beside_what_a_table_is_made_with():
    options = HudiOptions.parse({"hoodie.parquet.max.file.size": 1000})
    options.check()
    with pytest.raises(
        InvalidInputError, match=r"small.file.limit=104857600 \(the default\) must be at most"
    ):
        options.check(with_defaults=True)


# --- the task's over the table's --------------------------------------------------------------


def effective(own, table):
    return EffectiveOptions(HudiOptions.parse(own), HudiOptions.parse(table))


def test_a_tasks_options_hold_over_its_tables_and_its_arguments_over_these():
    table = {"hoodie.parquet.max.file.size": 1000, "hoodie.parquet.small.file.limit": 10}
    options = effective({"hoodie.parquet.max.file.size": 2000}, table)

    def sizes(**arguments):
        return options.arguments(
            Topic.WRITING, **{"target_file_size": None, "small_file_limit": None} | arguments
        )

    assert sizes() == {"target_file_size": 2000, "small_file_limit": 10}
    assert sizes(small_file_limit=20) == {"target_file_size": 2000, "small_file_limit": 20}
    assert sizes(target_file_size=2000) == sizes()
    with pytest.raises(
        InvalidInputError, match=r"target_file_size is 3000.*2000 \(hoodie.parquet.max.file.size\)"
    ):
        sizes(target_file_size=3000)


def test_an_argument_and_a_key_in_other_units_may_say_the_same():
    options = effective({"hoodie.client.heartbeat.interval_in_ms": 3000}, {})
    assert options.arguments(Topic.HEARTBEAT, heartbeat_interval=3) == {"heartbeat_interval": 3}


def test_who_says_that_conflicts_are_not_made_up_for_contradicts_who_says_how_often():
    options = effective({"hoodie.write.num.retries.on.conflict.failures": 3}, {})
    with pytest.raises(InvalidInputError, match="argument on_conflict is 'raise'"):
        options.arguments(Topic.WRITING, on_conflict="raise", max_rebases=None)
    table = effective({}, {"hoodie.write.num.retries.on.conflict.failures": 0})
    assert table.arguments(Topic.WRITING, on_conflict=None, max_rebases=None) == {"on_conflict": "raise"}


def test_a_task_that_takes_another_lock_provider_does_without_the_options_of_the_tables():
    own = {"hoodie.write.lock.provider": "InProcessLockProvider"}
    waits = {"hoodie.write.lock.wait_time_ms": 1500}
    assert effective(own, ZOOKEEPER | waits).options.lock == {
        "provider": "in_process",
        "timeout_seconds": 1.5,
    }
    assert effective({"hoodie.write.lock.zookeeper.lock_key": "f"}, ZOOKEEPER).options.lock["lock_key"] == "f"


def test_what_a_clean_keeps_is_taken_from_one_place():
    table = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": 48}

    def kept(own, **arguments):
        options = effective(own, table)
        return options.arguments(Topic.CLEANING, **{"policy": None, "retained": None} | arguments)

    assert kept({}) == {"policy": "KEEP_LATEST_BY_HOURS", "retained": 48}
    assert kept({}, retained=72.0) == {"policy": "KEEP_LATEST_BY_HOURS", "retained": 72.0}
    assert kept({}, policy="KEEP_LATEST_COMMITS") == {"policy": "KEEP_LATEST_COMMITS"}
    assert kept({"hoodie.clean.commits.retained": 5}) == {"policy": "KEEP_LATEST_COMMITS", "retained": 5}
    with pytest.raises(InvalidInputError, match="policy"):
        kept({"hoodie.clean.commits.retained": 5}, policy="KEEP_LATEST_BY_HOURS")


def test_a_task_cannot_contradict_its_table():
    with pytest.raises(InvalidInputError, match=r"hoodie\.metadata\.enable=false"):
        effective({"hoodie.metadata.enable": "false"}, {f"{INDEX}bloom.filter.enable": "true"})
