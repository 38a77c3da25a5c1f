"""Random writes to buckets by consistent hashing, each beside another write, a resizing or a compaction."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from airflow_provider.exceptions import NoSuchInstantError, TableServiceError, WriteConflictError
from airflow_provider.services.cleaning import Retention, clean
from airflow_provider.services.clustering import ClusteringJob, ClusteringSettings, run_clustering
from airflow_provider.services.clustering.clustering import (
    pending_clusterings,
    schedule_clustering,
    write_group,
)
from airflow_provider.services.table_compaction import TableCompactionSettings, compact_table
from airflow_provider.services.table_options import change_options
from tests.ingestion_contract.interleaving import MeetingLock
from tests.ingestion_contract.lake import Lake, LakeTable, in_order
from tests.unit.ingestion.buckets.test_bucket_resizing import MERGES, SPLITS
from tests.unit.ingestion.buckets.test_consistent_buckets import check_places, make, rows

KEYS = [f"k{n}" for n in range(60)]


class Machine:
    """A table, and a model of it: the value of each key by partition."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.rng = random.Random(seed)
        self.table: LakeTable = make(lake, self.rng.choice([1, 2, 5]))
        self.model: dict[tuple[str, str], str] = {}
        self.count = 0

    def write(self, *, beside: bool = False) -> None:
        """Write, perhaps with another action between the files and the commit."""
        rng, self.count = self.rng, self.count + 1
        value = str(self.count)
        operation = rng.choice(["upsert"] * 5 + ["insert", "delete", "insert_overwrite"])
        batch = [
            row
            for p in rng.sample(["a", "b"], rng.randint(1, 2))
            for row in rows(rng.sample(KEYS, rng.choice([1, 7, 40])), value, p)
        ]
        lock = MeetingLock(self.between) if beside else None
        self.table.ingest(operation, batch, on_conflict="rebase", max_rebases=20, lock=lock)
        if operation == "insert_overwrite":
            parts = {row["p"] for row in batch}
            self.model = {key: kept for key, kept in self.model.items() if key[0] not in parts}
        for row in batch:
            if operation == "delete":
                self.model.pop((row["p"], row["id"]), None)
            else:
                self.model[row["p"], row["id"]] = value

    def between(self) -> None:
        """The action between another write's files and its commit."""
        self.rng.choice([self.write, self.plan, self.run, self.compact])()

    def plan(self) -> None:
        """Plan a split or merge, in spite of writers in flight."""
        change_options(self.table.table, self.rng.choice([SPLITS, MERGES]))
        schedule_clustering(self.table.table, ClusteringSettings(), priority=self.rng.choice([200, 500]))

    def run(self, *, beside: bool = False) -> None:
        """Execute a plan, or the part of it that others have not changed."""
        if not pending_clusterings(self.table.table):
            self.plan()
        lock = MeetingLock(self.between) if beside else None
        with suppress(WriteConflictError, NoSuchInstantError):  # other writers were faster
            run_clustering(ClusteringJob.of(self.table.location), self.table.table, write_group, lock=lock)

    def compact(self) -> None:
        compact_table(self.table.table, TableCompactionSettings(delta_commits=1))

    def clean(self) -> None:
        clean(self.table.table, Retention("KEEP_LATEST_COMMITS", 5))

    def check(self) -> None:
        found = in_order([{"id": key, "p": p, "value": value} for (p, key), value in self.model.items()])
        assert self.table.rows() == found
        self.table.check_readers(None, found)
        check_places(self.table.table)


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_buckets_are_those_of_the_model(lake: Lake, seed: int) -> None:
    machine = Machine(lake, seed)
    for step in range(10):
        chosen = machine.rng.choice(
            [
                machine.write,
                lambda: machine.write(beside=True),
                lambda: machine.write(beside=True),
                machine.plan,
                lambda: machine.run(beside=True),
                machine.run,
                machine.compact,
                machine.clean,
            ]
        )
        try:
            chosen()
            machine.check()
        except TableServiceError as error:
            raise AssertionError(f"seed {seed}, step {step}: {error}") from error
