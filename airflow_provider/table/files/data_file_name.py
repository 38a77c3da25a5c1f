"""The parts of a data file's name, for base files and log files."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider.table.file_names import parse_base_file_name
from airflow_provider.table.files.log_file import LogFileName


class DataFileName(NamedTuple):
    """The parts that the names of all data files have.

    :param file_id: id of the file group.
    :param write_token: the task attempt that wrote it.
    :param instant: requested time of the instant that wrote it.
    :param is_log: whether it is a log file.
    """

    file_id: str
    write_token: str
    instant: str
    is_log: bool = False


def parse_data_file_name(name: str) -> DataFileName | None:
    """The parts of a data file's name; None for another file.

    :param name: the file's name, without its folder. The name of a log file has the writing instant only from
        table version 8 on.
    """
    if parsed := parse_base_file_name(name):
        return DataFileName(*parsed)
    log_file = LogFileName.parse(name)
    if log_file is None:
        return None
    return DataFileName(log_file.file_id, log_file.write_token, log_file.instant, is_log=True)
