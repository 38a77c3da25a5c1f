"""Sequences of operations on a merge-on-read table, compared with a dict; each engine runs them."""

from __future__ import annotations

import random
from typing import Any

from airflow_provider.services.cleaning.clean_plan import Retention
from airflow_provider.services.cleaning.cleaning import clean
from airflow_provider.services.table_compaction.compaction_settings import TableCompactionSettings
from airflow_provider.services.table_compaction.table_compaction import compact_table
from airflow_provider.table.reading import slices_of
from airflow_provider.table.timeline import Action
from tests.ingestion_contract.lake import KIB, Lake
from tests.ingestion_contract.model import SCHEMA, Model, batch_of, compare, in_effect

CONSISTENT = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 2,
}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}


def operations_one_after_the_other(
    lake: Lake,
    seed: int,
    steps: int,
    *,
    buckets: str | None = None,
    table_type: str = "merge_on_read",
    log_block_format: str = "parquet",
) -> None:
    """Run operations, compactions and cleans, and compare each with a dict and with hudi-rs.

    :param lake: makes the table, and decides which engine writes.
    :param seed: the seed of the random steps.
    :param steps: the number of steps.
    :param buckets: the concurrency of a table with a bucket index, or ``consistent``; None for no bucket
        index.
    :param table_type: the table's type.
    :param log_block_format: the format of new versions of records in log files.
    """
    rng = random.Random(seed)
    ordered = seed in (2, 3)
    table = lake.create(
        SCHEMA,
        record_key=["a"],
        partition_by=["p"] if seed != 1 else [],
        ordering_field="ts" if ordered else None,
        table_type=table_type,
        **_options(buckets, log_block_format),
    )
    model = Model(["a"], seed != 1, ordered)
    operations = ["upsert"] * 6 + ["delete"] * 3 + ["insert", "bulk_insert", "insert_overwrite"]
    operations += ["compact"] * 2 * (table_type == "merge_on_read") + ["clean"]
    if ordered and buckets == "non_blocking":
        # There a late row loses against a delete, until a compaction has forgotten the delete.
        operations = [each for each in operations if each != "delete"]
    for step in range(steps):
        operation = "bulk_insert" if step == 0 else rng.choice(operations)
        if operation == "compact":
            compact_table(
                table.table, TableCompactionSettings(delta_commits=1, max_io_bytes=rng.choice([None, 1]))
            )
        elif operation == "clean":
            clean(table.table, Retention("KEEP_LATEST_COMMITS", 20))
        elif batch := batch_of(rng, model, operation, step):
            # With a bucket index an inserted row replaces the existing one, because the hash finds its file
            # group.
            is_keyed = buckets is not None and operation in ("insert", "bulk_insert")
            if is_keyed:
                batch = batch_of(rng, model, "upsert", step)
            model.apply("upsert" if is_keyed else operation, in_effect(batch, model, operation))
            small = {"target_file_size": 12 * KIB, "small_file_limit": rng.choice([0, 0, 8 * KIB])}
            table.ingest(operation, batch, **small)
        compare(table, model, f"seed {seed}, step {step}: {operation}")
        table.check_readers(None, table.rows())
    if buckets is not None and buckets != "consistent":
        view = table.table.view()
        for partition in view.partitions():
            names = [each.file_id for each in slices_of(table.table, view, [partition])]
            assert {name[:8] for name in names} <= {"00000000", "00000001"}
            assert len({name[:8] for name in names}) == len(names)
    assert any(each.action is Action.COMMIT for each in table.table.timeline().commits())


def _options(buckets: str | None, log_block_format: str) -> dict[str, Any]:
    format_ = {"hoodie.logfile.data.block.format": log_block_format}
    if buckets is None:
        return {"hudi_options": format_}
    if buckets == "consistent":
        return {"hudi_options": CONSISTENT | format_}
    return {"hudi_options": BUCKETS | format_, "concurrency": buckets}
