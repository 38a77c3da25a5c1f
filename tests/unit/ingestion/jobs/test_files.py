"""Ingestion of files without Spark: the files found, the refused sources, and the choice of the engine."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from airflow_provider.exceptions import (
    EmptySourceError,
    InvalidInputError,
    MissingSourceError,
    SparkNeededError,
    UnreadableSourceError,
)
from airflow_provider.ingestion import ingest_files
from airflow_provider.ingestion.files import choose_engine_for
from airflow_provider.ingestion.ingest_job import Source
from airflow_provider.jobs import ARROW_MAX_BYTES
from airflow_provider.table import HudiTable, snapshot
from tests.ingestion_contract.lake import untouched
from tests.ingestion_contract.sources import ALIKE, COLUMNS, UNLIKE, rows


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(str(tmp_path / "table"), name="t", schema=COLUMNS, record_key=["id"])


def load(table: HudiTable, source: str, **options: object) -> dict[str, object]:
    return ingest_files(table.location, source, **{"set_null_for_missing_columns": True, **options})


@pytest.mark.parametrize("name", ALIKE)
def test_what_both_read(table: HudiTable, tmp_path: Path, name: str) -> None:
    case = ALIKE[name]
    result = load(table, case.source(tmp_path / "source"), **case.options)
    assert result["rows_inserted"] == snapshot(table).count_rows() > 1


@pytest.mark.parametrize("name", UNLIKE)
def test_what_only_spark_reads_as_spark_does(table: HudiTable, tmp_path: Path, name: str) -> None:
    case, said = UNLIKE[name]
    source = case.source(tmp_path / "source")

    def act() -> None:
        with pytest.raises(SparkNeededError, match="read it with engine='spark'") as caught:
            load(table, source, **case.options)
        assert said in str(caught.value)

    untouched(table.location, act)


@pytest.mark.parametrize("kind", ["arrow", "stream", "feather"])
def test_arrows_own_files(table: HudiTable, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "a.file"
    if kind == "feather":
        pyarrow.feather.write_feather(rows(1, 2), file)
    else:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(file, COLUMNS) as written:
            written.write_table(rows(1, 2))
    load(table, str(file), source_format="feather" if kind == "feather" else "arrow")
    assert snapshot(table).count_rows() == 2


def test_nothing_there_nothing_in_it_and_nothing_to_be_read(table: HudiTable, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1, but nothing of it")
    pq.write_table(COLUMNS.empty_table(), tmp_path / "rowless.parquet")
    for path, error in {
        "missing/*.parquet": MissingSourceError,
        "missing": MissingSourceError,
        "empty": EmptySourceError,
        "rowless.parquet": EmptySourceError,
        "broken.parquet": UnreadableSourceError,
    }.items():
        with pytest.raises(error, match=path.partition("*")[0]) as caught:
            load(table, str(tmp_path / path))
        assert type(caught.value) is error
    with pytest.raises(UnreadableSourceError, match="nowhere"):
        load(table, "nowhere://bucket/a.parquet")


def test_the_log_tells_what_happens(
    table: HudiTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "airflow_provider"):
        load(table, ALIKE["parquet"].source(tmp_path / "a"), operation_key="k")
        load(table, ALIKE["parquet"].source(tmp_path / "a"), operation_key="k")
        load(table, ALIKE["json"].source(tmp_path / "b"), source_format="json")
    told = iter(caplog.messages)
    for expected in (
        "read: 1 file,",
        "begun, operation upsert, priority 400",
        "3 rows of 1 partitions go to 1 file groups, 1 of them new",
        "1 of 1 file groups written, 1 files,",
        "committing",
        "committed at",
        "an earlier try committed instant",
        "read: 1 file,",
    ):
        assert any(expected in line for line in told), (expected, caplog.messages)


class TestChoice:
    def choose(self, source: Path | str, engine: str = "auto", limit: int = ARROW_MAX_BYTES, **of: str):
        return choose_engine_for(engine, Source((str(source),), **of), {}, limit, sees_what_spark_sees=True)

    def test_by_size(self, tmp_path: Path) -> None:
        file = tmp_path / "a.parquet"
        pq.write_table(rows(1, 2), file)
        size = file.stat().st_size
        assert str(self.choose(file, limit=size)) == (
            f"engine arrow: 1 file of format parquet, {size:,} bytes, not more than arrow_max_bytes={size:,}"
        )
        assert str(self.choose(file, limit=size - 1)).startswith("engine spark: 1 file of format parquet")
        assert self.choose(file, "spark").engine == "spark"
        assert self.choose(file, "arrow", limit=0).engine == "arrow"

    def test_by_what_only_one_reads(self, tmp_path: Path) -> None:
        file = tmp_path / "a.parquet"
        pq.write_table(rows(1, 2), file)
        assert self.choose(file, source_format="orc").engine == "spark"
        for engine, limit in (("spark", 10**9), ("auto", 1)):
            with pytest.raises(InvalidInputError, match="engine='arrow'"):
                self.choose(file, engine, limit, source_format="arrow")

    def test_by_what_the_worker_sees(self, tmp_path: Path) -> None:
        with pytest.raises(MissingSourceError):
            self.choose(tmp_path / "missing")
        elsewhere = choose_engine_for(
            "auto", Source((f"{tmp_path}/missing",)), {}, 1, sees_what_spark_sees=False
        )
        assert elsewhere.engine == "spark"
        assert self.choose("nowhere://bucket/a").engine == "spark"

    def test_before_a_spark_on_this_machine_starts(self, tmp_path: Path) -> None:
        with pytest.raises(MissingSourceError):
            self.choose(tmp_path / "missing", "spark")
        assert self.choose(f"{tmp_path}/{{a,b}}", "spark").engine == "spark"
        assert self.choose("nowhere://bucket/a", "spark").engine == "spark"
        file = tmp_path / "a.parquet"
        pq.write_table(rows(1, 2), file)
        with pytest.raises(UnreadableSourceError, match="NotADirectoryError"):
            self.choose(file / "inside")
