"""The answers in which our metastore differs from a Hive 4.0.1 on purpose, and the reason of each.

A reason is a row of the table in docs/metastore-methods.md, "Where answers differ from Hive's".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from tests.engines.calls.compared import Difference

# The first cell of a row of the docs, and what :attr:`Difference.where` may be; ``[`` stands for itself.
LISTED: Mapping[str, Sequence[str]] = {
    "what is wrong with a request": (
        "databases: create_table q",
        "databases: create_table two_alike",
        "databases: get_table_names_by_filter garbage",
        "databases: truncate_table('calls', 'nope', [])",
        "partitions: add_partition with one value",
        "partitions: add_partition with three values",
        "partitions: add_partitions twice the same",
        "partitions: append_partition('calls', 'plain', ['app'])",
        "partitions: truncate_table('calls', 'p', ['d=nope/n=1'])",
        "objects: drop_constraint twice",
        "objects: heartbeat_lock_materialization_rebuild*",
        "transactions: open_txns 0",
        "transactions: open_txns -1",
        "transactions: allocate for nobody",
        "transactions: allocate for a transaction that was never",
        "transactions: allocate for a reader",
        "transactions: get_valid_write_ids zzz",
        "transactions: commit_txn with a key and a value",
        "transactions: get_valid_write_ids validTxnList garbage",
        "transactions: lock nothing",
    ),
    "names with blanks, columns with empty names, a partition key that is a column, too": (
        "databases: create_database bad name",
        "databases: create_table a b",
        "databases: create_table a.b",
        "databases: create_table empty_column",
        "databases: create_table key_is_a_column",
    ),
    "when a database or the catalog was created": (
        "databases: get_database* .createTime",
        "databases: get_catalog .catalog.createTime",
    ),
    "`translate_table_dryrun`": ("databases: translate_table_dryrun .*",),
    "`like` in filters": (
        "databases: get_table_names_by_filter hive_filter_field_params__EXTERNAL like*",
        "partitions: filter [d like 'a.*']",
        "partitions: filter [d like '.']",
        "partitions: get_num_partitions_by_filter('calls', 'p', \"d like 'a.*'\")",
    ),
    "`get_tables_ext`": ("databases: get_tables_ext",),
    "fields that a projection leaves out": ("databases: get_table_objects_by_name_req projection .tables*",),
    "parameters such as `numFiles` and `COLUMN_STATS_ACCURATE`": (
        "databases: alter_table *.parameters.totalSize",
        "databases: alter_table *.parameters.numFiles*",
        "partitions: alter_partition .parameters.totalSize",
        "partitions: alter_partition .parameters.numFiles*",
        "objects: parameters with statistics",
    ),
    "a type of a column that is changed to an incompatible one": (
        "databases: alter_table incompatible type",
    ),
    "a table without a serializer": (
        "databases: create_table of a descriptor without a serde",
        "databases: get_table_req bare",
    ),
    "what is told of a partition that was just added": (
        "partitions: add_partition * .sd.skewedInfo",
        "partitions: add_partition * .sd.storedAsSubDirectories",
    ),
    "an empty partition value": (
        "partitions: add_partition with an empty value",
        "partitions: drop_partition with an empty value",
    ),
    "names of partitions and write ids of tables in upper case": (
        "partitions: get_partition_by_name('calls', 'p', 'D=a/N=1')",
        "transactions: get_valid_write_ids CALLS.AC*",
    ),
    "partitions of a table that does not exist": (
        "partitions: get_partition_names('calls', 'nope', -1)",
        "partitions: get_partitions('calls', 'nope', -1)",
    ),
    "filters and expressions that a Hive refuses": (
        "partitions: get_partition_names_req",
        "partitions: get_partitions_by_expr",
        "partitions: filter [d in ('a','b')]",
        "partitions: filter [n in (1,2)]",
        "partitions: filter [n not in (1)]",
        "partitions: filter [n = '1']",
        "partitions: filter [d = 1]",
        "partitions: filter [   ]",
        "partitions: filter [(d,n) IN (('a',1))]",
        "partitions: filter [n like '1.*']",
        "partitions: get_num_partitions_by_filter('calls', 'p', 'n in (1,2)')",
        "partitions: typed filter [dbl > *]",
        "partitions: typed filter [dc > *]",
        "partitions: typed filter [dt in (2026-01-01)]",
    ),
    "values for some of the partition keys": (
        "partitions: get_partition_names_ps ['a']",
        "partitions: get_partitions_ps ['a']",
        "partitions: get_partition_names_ps []",
    ),
    "`month = 1` for the value `01` of a number": (
        "partitions: filter [n = 1]",
        "partitions: filter [(n) in (1,2)]",
        "partitions: filter [1 = n]",
        "partitions: filter [n = 01]",
        "partitions: filter [((n = 1))]",
        "partitions: filter [(struct(d,n)) IN*",
        "partitions: filter [n = 1.0]",
        "partitions: filter [n == 1]",
        "partitions: get_num_partitions_by_filter('calls', 'p', 'n = 1')",
    ),
    "`truncate_table` outside of the warehouse and the managed locations": (
        "databases: truncate_table('calls', 't', [])",
    ),
    "`exchange_partition`": ("partitions: exchange_partition",),
    "statistics of partitions, some of which have none": (
        "objects: get_aggr_stats_for .colStats[0].statsData.longStats.*",
    ),
    "roles, grants, settings": (
        "objects: create_role",
        "objects: drop_role('calls')",
        "objects: grant_privileges nothing",
        "objects: get_privilege_set .groupPrivileges",
        "objects: getMetaConf*",
        "objects: setMetaConf('nope', 'true')",
        "objects: get_config_value('metastore.batch.retrieve.max', '50')",
        "objects: set_ugi*",
        "objects: getName()",
        "objects: getCounters",
    ),
    "compactions": ("objects: compact2 .*", "objects: find_next_compact*"),
    "`isPartitionMarkedForEvent`": ("objects: isPartitionMarkedForEvent*",),
    "write ids of a table that does not exist": (
        "transactions: allocate on a table that is not there",
        "transactions: get_valid_write_ids two [1]*",
    ),
    "write ids that are asked for again": ("transactions: allocate known ones and a new one",),
    "a list of write ids that cannot be read": ("transactions: get_table_req validWriteIdList *",),
    "`get_all_write_event_info`": ("transactions: get_all_write_event_info [0].tableObj.*",),
    "two transactions that update one partition": ("transactions: two transactions: update, *",),
    "a change of a managed table": (
        "transactions: get_valid_write_ids calls.t [0].writeIdHighWaterMark",
        "transactions: events of fire_listener_event",
    ),
}


def reason(difference: Difference) -> str | None:
    """The row of the docs that gives the reason; None when a difference is not listed."""
    for row, places in LISTED.items():
        if any(fnmatchcase(difference.where, place.replace("[", "[[]")) for place in places):
            return row
    return None
