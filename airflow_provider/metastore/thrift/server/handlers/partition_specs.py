"""Hive's ``PartitionSpec``: partitions with a common storage descriptor, which it carries once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_provider.metastore.model import TableInfo
from airflow_provider.metastore.thrift.protocol import hive


def partition_specs(table: TableInfo, partitions: Sequence[Any]) -> list[Any]:
    """Group partitions as Hive does (``getPartitionspecsGroupedByStorageDescriptor``).

    Partitions below the table's folder are grouped by their storage descriptors; all others form one list.

    :param table: the partitions' table.
    :param partitions: Hive's structs.
    """
    root = table.location.rstrip("/")
    shared: dict[str, tuple[Any, list[Any]]] = {}
    others = []
    for one in partitions:
        if one.sd is None or not (one.sd.location or "").startswith(f"{root}/"):
            others.append(one)
            continue
        storage = copy.copy(one.sd)
        storage.location = root
        shared.setdefault(repr(storage), (storage, []))[1].append(one)
    place = {"dbName": table.database, "tableName": table.name, "rootPath": root, "catName": "hive"}
    specs = [
        hive.PartitionSpec(
            **place,
            sharedSDPartitionSpec=hive.PartitionSpecWithSharedSD(
                sd=storage, partitions=[_without_storage(one, root) for one in members]
            ),
        )
        for storage, members in shared.values()
    ]
    if others:
        composed = hive.PartitionListComposingSpec(partitions=others)
        specs.append(hive.PartitionSpec(**place, partitionList=composed))
    return specs


def partitions_of(specs: Iterable[Any]) -> list[Any]:
    """The partitions of specs, each as a struct of its own."""
    found: list[Any] = []
    for spec in specs:
        if spec.partitionList is not None:
            found.extend(spec.partitionList.partitions or [])
        if spec.sharedSDPartitionSpec is not None:
            shared = spec.sharedSDPartitionSpec
            found.extend(_with_storage(spec, shared.sd, one) for one in shared.partitions or [])
    return found


def _without_storage(partition: Any, root: str) -> Any:
    return hive.PartitionWithoutSD(
        values=partition.values,
        createTime=partition.createTime,
        lastAccessTime=partition.lastAccessTime,
        relativePath=partition.sd.location[len(root) :],
        parameters=partition.parameters,
    )


def _with_storage(spec: Any, shared: Any, partition: Any) -> Any:
    storage = copy.copy(shared)
    storage.location = f"{(shared.location or spec.rootPath).rstrip('/')}{partition.relativePath}"
    return hive.Partition(
        values=partition.values,
        dbName=spec.dbName,
        tableName=spec.tableName,
        createTime=partition.createTime,
        lastAccessTime=partition.lastAccessTime,
        sd=storage,
        parameters=partition.parameters,
        writeId=spec.writeId,
    )
