"""The rows of a write: in memory, or on a Spark cluster."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence

from airflow_provider.ingestion.columns import BatchColumns
from airflow_provider.ingestion.file_groups import FileGroupPlan, Report, WritePlan
from airflow_provider.ingestion.key_lookup import Living
from airflow_provider.table.bucket_index import BucketIndex
from airflow_provider.table.file_groups import BaseFile, FileGroupId
from airflow_provider.table.metadata_table import MetadataPartition, UsableIndexes

FOOTERS = "footers"
"""Value of :attr:`IncomingRows.located_by` for a look-up in the data files themselves."""

BUCKETS = "buckets"
"""Value of :attr:`IncomingRows.located_by` for a look-up by the hashes of the keys."""


class IncomingRows(abc.ABC):
    """Rows on their way into a table.

    :ivar columns: the rows' columns, compared with the table's.
    :ivar counts: number of rows by partition path.
    :ivar located_by: where :meth:`find` has found the keys: the index, or :data:`FOOTERS`.
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
        """Find the base files of the rows' keys; :meth:`send` uses the result.

        :param base_files: the base files to search, by partition path.
        :param indexes: the table's indexes; if they can answer, no file is searched.
        :param living: for a merge-on-read table: the live keys in the file slice of a base file.
        :return: number of rows whose key is in a base file, without base files that have none.
        :raises InvalidRecordKeyError: when the table has a record index, and a key is in another partition.
        """

    @staticmethod
    def _looked_in(indexes: UsableIndexes | None) -> str:
        """Where a look-up without a record index finds the bloom filters of the data files."""
        has_filters = indexes is not None and indexes.has(MetadataPartition.BLOOM_FILTERS)
        return MetadataPartition.BLOOM_FILTERS if has_filters else FOOTERS

    @abc.abstractmethod
    def check_new(self, indexes: UsableIndexes, replaced: Collection[FileGroupId] = ()) -> None:
        """Make sure, by the record index, that each row's key is new to the table and unique.

        :param indexes: the table's indexes.
        :param replaced: file groups whose keys leave the table.
        :raises InvalidRecordKeyError: when a key is not new, or not unique; the message names it.
        """

    @abc.abstractmethod
    def in_buckets(self, index: BucketIndex) -> Mapping[str, Collection[int]]:
        """The buckets that the rows belong to, by partition path; :meth:`send` uses the result.

        :param index: the table's bucket index, with the present buckets of the rows' partitions.
        """

    @abc.abstractmethod
    def send(self, plan: FileGroupPlan, write_plan: WritePlan) -> list[Report]:
        """Run one task for each target, with the target's rows.

        A row whose key was found goes to every target that rewrites one of its base files. If no target does,
        it is left out. Other rows go to targets by their partition's shares. In a plan by buckets each row
        goes to the target of its bucket. If the bucket has none, the row is left out.

        :param plan: the targets, and the assignment of rows to them.
        :param write_plan: the part of the plan that the tasks need.
        :return: the tasks' reports.
        """

    @abc.abstractmethod
    def sent_to(self, numbers: Collection[int]) -> IncomingRows:
        """The rows that were sent to some targets, to be sent again.

        :param numbers: numbers of targets in the plans of earlier calls of :meth:`send`, including those for
            rows that this method returned.
        """

    @abc.abstractmethod
    def unsent(self) -> IncomingRows:
        """The same rows, without the results of earlier look-ups and sends."""
