"""The rows of a write, wherever they are: in memory, or on a Spark cluster."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence

from airflow_provider.ingestion.columns import BatchColumns
from airflow_provider.ingestion.file_group_plan import FileGroupPlan
from airflow_provider.ingestion.file_group_task import Report, WritePlan
from airflow_provider.ingestion.key_lookup import Living
from airflow_provider.table.file_groups import BaseFile, FileGroupId
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes

FOOTERS = "footers"
"""In :attr:`IncomingRows.located_by`: the data files themselves."""


class IncomingRows(abc.ABC):
    """Rows on their way into a table.

    :ivar columns: what their columns mean to the table.
    :ivar counts: number of rows by partition path.
    :ivar located_by: what told :meth:`find` where the keys live: the index, or :data:`FOOTERS`.
    """

    columns: BatchColumns
    counts: Mapping[str, int]
    located_by: str = ""

    @abc.abstractmethod
    def find(
        self,
        base_files: Mapping[str, Sequence[BaseFile]],
        indexes: UsableIndexes | None = None,
        living: Living | None = None,
    ) -> Mapping[BaseFile, int]:
        """Look up in which base files the rows' keys live; :meth:`send` uses the result.

        :param base_files: where to look, by partition path.
        :param indexes: the table's indexes; what they tell is not looked for in the files.
        :param living: of a merge-on-read table: the keys that live in the file slice of a base file.
        :return: number of rows whose key is in a base file, for those that have any.
        :raises InvalidRecordKeyError: when the table has a record index, and a key in another partition.
        """

    @staticmethod
    def _looked_in(indexes: UsableIndexes | None) -> str:
        """Where the look-up finds the bloom filters of the data files, without a record index."""
        has_filters = indexes is not None and indexes.has(MetadataPartition.BLOOM_FILTERS)
        return MetadataPartition.BLOOM_FILTERS if has_filters else FOOTERS

    @abc.abstractmethod
    def check_new(self, indexes: UsableIndexes, replaced: Collection[FileGroupId] = ()) -> None:
        """Make sure that each row's key is new to the table, by its record index, and comes once.

        :param indexes: the table's indexes.
        :param replaced: file groups whose keys leave the table.
        :raises InvalidRecordKeyError: when one is not; names it.
        """

    @abc.abstractmethod
    def send(self, plan: FileGroupPlan, write_plan: WritePlan) -> list[Report]:
        """Run one task a target, each with the target's rows.

        A row whose key was found goes to every target that rewrites one of its base files, and
        nowhere if none does; other rows go where their partition's shares say.

        :param plan: which rows go where.
        :param write_plan: what the tasks have to know.
        :return: what the tasks did.
        """

    @abc.abstractmethod
    def sent_to(self, numbers: Collection[int]) -> IncomingRows:
        """The rows that some targets got, as rows to be sent anew.

        :param numbers: of targets in the plans of earlier calls of :meth:`send`, also those of rows
            that this method returned.
        """

    @abc.abstractmethod
    def unsent(self) -> IncomingRows:
        """The same rows, without the results of earlier look-ups and sends."""
