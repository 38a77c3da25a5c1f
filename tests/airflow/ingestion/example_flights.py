"""A slice of the flights, for the tests of the example DAGs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder

from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.reading.snapshots import snapshot
from dags_examples.demo.flights import COLUMNS, read_flights

EXAMPLES = Path(__file__).parents[3] / "dags_examples"
KEY = ["time_hour", "carrier", "flight"]


def some_flights() -> pa.Table:
    """A few hundred flights of the first days of September, October and December."""
    flights = read_flights()
    wanted = pc.and_(
        pc.is_in(flights["month"], pa.array([9, 10, 12])), pc.less_equal(flights["day"], pa.scalar(2))
    )
    return flights.filter(pc.and_(wanted, pc.equal(flights["origin"], "JFK")))


def connection(port: int) -> str:
    session = {"session_id": str(uuid.uuid4())}
    described = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port, "extra": session}
    return json.dumps(described)


def check_rows(location: Path, wanted: pa.Table) -> None:
    """Check that our reader and hudi-rs both find these flights, each once."""
    ours = snapshot(HudiTable.open(str(location))).to_table()
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(location)).build().read())
    keys = [(name, "ascending") for name in KEY]
    wanted = wanted.select(COLUMNS).sort_by(keys).combine_chunks()
    for found in (ours, theirs):
        rows = found.select(COLUMNS).cast(wanted.schema).sort_by(keys).combine_chunks()
        assert rows.equals(wanted)
