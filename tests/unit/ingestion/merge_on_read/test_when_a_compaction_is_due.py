"""When a compaction of a merge-on-read table is due, and of which file groups, as Hudi's options say."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.services.table_compaction import (
    TableCompactionSettings,
    due_table_compactions,
    preview_table_compaction,
    run_table_compaction,
    schedule_table_compaction,
)
from airflow_provider.table import HudiTable
from airflow_provider.table.hudi_options import EffectiveOptions, HudiOptions
from airflow_provider.table.storage import Storage
from airflow_provider.table.timeline import Action, parse_time
from tests.ingestion_contract.lake import Lake, LakeTable
from tests.unit.ingestion.merge_on_read.three_file_groups import (
    ALWAYS,
    APART,
    SCHEMA,
    logs,
    make,
    make_filled,
    row,
)

TRIGGER = "hoodie.compact.inline.trigger.strategy"
STRATEGY = "hoodie.compaction.strategy"
EVERY_COMMIT = {"hoodie.compact.inline.max.delta.commits": 1}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    """Three deltacommits, of which the last has appended a log file."""
    made = make_filled(lake)
    made.ingest("upsert", [row(1, "new")], **APART)
    return made


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the storage's clock to some seconds after a moment."""

    def until(seconds: float, since: str) -> None:
        then = parse_time(since).timestamp() + seconds
        monkeypatch.setattr(Storage, "clock", lambda _, **__: then)

    return until


def is_due(table: LakeTable, trigger: str, **settings: Any) -> bool:
    settings = {"delta_commits": 3, "delta_seconds": 60, **settings}
    return (
        preview_table_compaction(table.table, TableCompactionSettings(trigger=trigger, **settings))
        is not None
    )


def first(table: LakeTable) -> str:
    return table.table.timeline().commits()[0].requested_time


# --- when -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trigger", "few_soon", "few_late", "many_soon", "many_late"),
    [
        ("NUM_COMMITS", False, False, True, True),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", False, False, True, True),
        ("TIME_ELAPSED", False, True, False, True),
        ("NUM_AND_TIME", False, False, False, True),
        ("NUM_OR_TIME", False, True, True, True),
    ],
)
def test_deltacommits_and_time_decide_as_the_trigger_says(
    table: LakeTable,
    wait: Any,
    trigger: str,
    few_soon: bool,
    few_late: bool,
    many_soon: bool,
    many_late: bool,
) -> None:
    wait(59, first(table))
    assert is_due(table, trigger, delta_commits=4) is few_soon
    assert is_due(table, trigger) is many_soon
    wait(60, first(table))
    assert is_due(table, trigger, delta_commits=4) is few_late
    assert is_due(table, trigger) is many_late


def test_time_runs_from_the_last_compaction_by_the_clock_of_the_storage(table: LakeTable, wait: Any) -> None:
    instant = schedule_table_compaction(table.table, ALWAYS)
    assert instant is not None
    run_table_compaction(table.table, instant)
    table.ingest("upsert", [row(1, "newer")], **APART)
    wait(59.999, instant)  # more than 60 seconds after the deltacommits before it
    assert not is_due(table, "TIME_ELAPSED")
    late = TableCompactionSettings(trigger="TIME_ELAPSED", delta_seconds=60)
    assert schedule_table_compaction(table.table, late) is None
    wait(60, instant)
    assert is_due(table, "TIME_ELAPSED")
    assert schedule_table_compaction(table.table, late) is not None


def test_the_clock_of_this_machine_does_not_count(
    table: LakeTable, wait: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait(59, first(table))
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert not is_due(table, "TIME_ELAPSED")


def test_a_table_without_deltacommits_is_never_due(lake: Lake, wait: Any) -> None:
    assert not is_due(make(lake), "TIME_ELAPSED")


def test_a_plan_that_waits_counts_where_the_trigger_says_so(table: LakeTable) -> None:
    assert schedule_table_compaction(table.table, ALWAYS) is not None
    table.ingest("upsert", [row(1, "newer", "b")], **APART)  # a file group that is not in the plan
    assert is_due(table, "NUM_COMMITS")
    assert not is_due(table, "NUM_COMMITS_AFTER_LAST_REQUEST")
    assert is_due(table, "NUM_COMMITS_AFTER_LAST_REQUEST", delta_commits=1)


def test_a_load_compacts_once_the_time_of_the_tables_options_has_passed(lake: Lake, wait: Any) -> None:
    options = {
        "hoodie.compact.inline": True,
        TRIGGER: "TIME_ELAPSED",
        "hoodie.compact.inline.max.delta.seconds": 5,
        **EVERY_COMMIT,
    }
    table = make(lake, hudi_options=options)
    table.ingest("insert", [row(1, "old")])
    wait(4, first(table))
    table.ingest("upsert", [row(1, "new")])
    assert len(logs(table)) == 1
    wait(5, first(table))
    table.ingest("upsert", [row(1, "newer")])
    assert logs(table) == []
    table.check_now([row(1, "newer")])


# --- which file groups ------------------------------------------------------------------------


def by_options(table: LakeTable, **options: Any) -> Any:
    """The partitions of a plan by options, with dots as ``__``; None when nothing is due."""
    given = {f"hoodie.compaction.{name.replace('__', '.')}": value for name, value in options.items()}
    effective = EffectiveOptions(HudiOptions(), HudiOptions.parse(given | EVERY_COMMIT))
    due = due_table_compactions(table.table, TableCompactionSettings.of(effective))["due"]
    return due and due["partitions"]


@pytest.fixture
def days(lake: Lake) -> LakeTable:
    """The newest of three days has the fewest log files, and the smallest."""
    made = lake.create(SCHEMA, partition_by=["part"], table_type="merge_on_read")
    parts = ("2024-05-01", "2024-05-02", "2024-05-03")
    made.ingest("bulk_insert", [row(1, "old", part) for part in parts])
    made.ingest("upsert", [row(1, "".join(map(str, range(9_000))), parts[0])], **APART)
    for part in (parts[1], parts[1], parts[2]):
        made.ingest("upsert", [row(1, "new", part)], **APART)
    return made


FIRST, SECOND, THIRD = (f"part=2024-05-0{day}" for day in (1, 2, 3))


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({}, [FIRST, SECOND, THIRD]),
        ({"strategy": "UnBoundedCompactionStrategy", "target__io": 1}, [FIRST, SECOND, THIRD]),
        ({"strategy": "LogFileNumBasedCompactionStrategy", "logfile__num__threshold": 2}, [SECOND]),
        ({"strategy": "LogFileSizeBasedCompactionStrategy", "logfile__size__threshold": 10**9}, None),
        ({"logfile__size__threshold": 10**9}, None),
        # In Hudi each class reads options of its own alone.
        ({"logfile__num__threshold": 2}, [FIRST, SECOND, THIRD]),
        (
            {"strategy": "BoundedIOCompactionStrategy", "logfile__size__threshold": 10**9},
            [FIRST, SECOND, THIRD],
        ),
        ({"strategy": "DayBasedCompactionStrategy"}, [FIRST, SECOND, THIRD]),
        ({"strategy": "DayBasedCompactionStrategy", "daybased__target__partitions": 2}, [SECOND, THIRD]),
        (
            {"strategy": "PartitionRegexBasedCompactionStrategy", "partition__path__regex": "05-0[13]$"},
            [FIRST, THIRD],
        ),
        (
            {
                "strategy": "org.apache.hudi.table.action.compact.strategy.DayBasedCompactionStrategy,"
                "org.apache.hudi.io.compact.strategy.LogFileNumBasedCompactionStrategy",
                "daybased__target__partitions": 2,
                "logfile__num__threshold": 2,
            },
            [SECOND],
        ),
    ],
)
def test_hudis_strategies_choose_file_groups(days: LakeTable, options: Any, partitions: Any) -> None:
    assert by_options(days, **options) == partitions


@pytest.mark.parametrize(
    ("strategy", "partition"),
    [
        ("LogFileSizeBasedCompactionStrategy", FIRST),
        ("LogFileNumBasedCompactionStrategy", SECOND),
        ("DayBasedCompactionStrategy", THIRD),
    ],
)
def test_a_bound_leaves_what_comes_first_by_the_strategy(
    days: LakeTable, strategy: str, partition: str
) -> None:
    options = EffectiveOptions(HudiOptions(), HudiOptions.parse({STRATEGY: strategy, **EVERY_COMMIT}))
    settings = TableCompactionSettings.of(options, max_io_bytes=1)
    assert due_table_compactions(days.table, settings)["due"]["partitions"] == [partition]


def test_an_argument_is_a_limit_whatever_the_strategy(days: LakeTable) -> None:
    options = EffectiveOptions(HudiOptions(), HudiOptions.parse(EVERY_COMMIT))
    settings = TableCompactionSettings.of(options, strategy="UnBoundedCompactionStrategy", min_log_files=2)
    assert due_table_compactions(days.table, settings)["due"]["partitions"] == [SECOND]


def test_a_load_compacts_the_file_groups_of_the_tables_strategy(lake: Lake) -> None:
    options = {
        "hoodie.compact.inline": True,
        STRATEGY: "LogFileNumBasedCompactionStrategy",
        "hoodie.compaction.logfile.num.threshold": 2,
        **EVERY_COMMIT,
    }
    table = make(lake, hudi_options=options)
    table.ingest("insert", [row(1, "old"), row(1, "old", "b")])
    table.ingest("upsert", [row(1, "new"), row(1, "new", "b")])
    assert len(logs(table)) == 2
    table.ingest("upsert", [row(1, "newer")])
    (left,) = logs(table)
    assert left.startswith("part=b/")
    assert [each.action for each in table.table.timeline().commits()].count(Action.COMMIT) == 1


# --- what is refused --------------------------------------------------------------------------


def test_the_newest_days_need_partitions_that_are_days(table: LakeTable) -> None:
    with pytest.raises(InvalidInputError, match="partition 'part=a' is no day such as"):
        by_options(table, strategy="DayBasedCompactionStrategy")


@pytest.mark.parametrize("name", ["BestCompactionStrategy", "com.acme.BoundedIOCompactionStrategy", ""])
def test_an_unknown_strategy_is_refused_by_name(tmp_path: Path, name: str) -> None:
    told = f"{STRATEGY} must be: one or more of `LogFileSizeBasedCompactionStrategy`, .*, not '{name}'"
    with pytest.raises(InvalidInputError, match=told):
        HudiTable.create(
            str(tmp_path / "t"),
            name="t",
            schema=SCHEMA,
            record_key=["id"],
            table_type="merge_on_read",
            hudi_options={STRATEGY: name},
        )
    assert not (tmp_path / "t").exists()


def test_a_regex_that_is_missing_is_asked_for(table: LakeTable) -> None:
    with pytest.raises(InvalidInputError, match=r"without hoodie\.compaction\.partition\.path\.regex: say"):
        by_options(table, strategy="PartitionRegexBasedCompactionStrategy")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"trigger": "SOMETIMES"}, "trigger must be one of NUM_COMMITS, .*, not 'SOMETIMES'"),
        ({"delta_seconds": 0}, "delta_seconds must be a number above 0, not 0"),
        ({"delta_seconds": "60"}, "delta_seconds must be a number above 0, not '60'"),
        ({"newest_days": 0}, "newest_days must be a whole number of at least 1, not 0"),
        ({"partition_regex": "("}, r"partition_regex must be a regular expression, not '\('"),
    ],
)
def test_wrong_settings_are_told(settings: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        TableCompactionSettings(**settings)
