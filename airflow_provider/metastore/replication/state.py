"""A whole state of the source: one snapshot of its database, which one transaction copies to the target."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from sqlalchemy import Connection

from airflow_provider.exceptions import NoSuchTransactionError
from airflow_provider.metastore.catalog import catalog, functions, partitions
from airflow_provider.metastore.model import Phase, Scope, SourceState, TableState, TxnState
from airflow_provider.metastore.notifications import current_event_id
from airflow_provider.metastore.replication.events import (
    put_database,
    put_function,
    put_table,
    specs_of,
)
from airflow_provider.metastore.replication.policies import find_policy, set_phase
from airflow_provider.metastore.replication.transactions import (
    bring_write_ids,
    end_txn,
    force_write_id,
    map_txn,
    mapped_txns,
)
from airflow_provider.metastore.transactions import table_write_ids, transactions


def read_source(connection: Connection, databases: Collection[str], asked: Collection[int]) -> SourceState:
    """Read the state of the source, in one snapshot of its database.

    :param databases: the names of the replicated databases.
    :param asked: the transactions whose states the target asks for.
    """
    event_id = current_event_id(connection)
    seen = transactions.valid_txn_list(connection, None)
    there = tuple(one for one in catalog.all_databases(connection) if one.name in databases)
    tables = []
    for database in there:
        for name in catalog.list_tables(connection, database.name):
            table, found = partitions.get_table_and_partitions(connection, database.name, name)
            aborted, committed = table_write_ids.ended_write_ids(connection, database.name, name)
            tables.append(
                TableState(
                    table,
                    tuple(found),
                    table_write_ids.valid_write_id_list(connection, database.name, name, seen),
                    table_write_ids.last_write_id(connection, database.name, name),
                    frozenset(aborted),
                    committed,
                )
            )
    opened = [txn for txn in seen.exceptions if not seen.is_aborted(txn)]
    open_txns = {
        txn: {
            (write.database, write.table): write.write_id
            for write in transactions.writes_of(connection, txn)
            if write.write_id is not None and write.database in databases
        }
        for txn in opened
    }
    ended = {}
    for txn in asked:
        with suppress(NoSuchTransactionError):
            ended[txn] = transactions.get_txn(connection, txn).state
    made = tuple(one for one in functions.all_functions(connection) if one.database in databases)
    return SourceState(event_id, 0, seen, there, tuple(tables), made, open_txns, ended)


def bring_over(connection: Connection, state: SourceState, scope: Scope) -> None:
    """Make the target's catalog, transactions and write ids equal to the source's, and take its position.

    This drops the objects that only the target has. So it also serves a target whose position has fallen out
    of the source's log.

    It does nothing when another replicator has done the same since the bootstrap began.
    """
    known = find_policy(connection, scope.policy, lock=True)
    if known.phase is not Phase.BOOTSTRAP:
        return
    _drop_what_is_gone(connection, state, scope)
    for database in state.databases:
        put_database(connection, database, scope)
    for each in state.tables:
        _put_table(connection, each, scope)
    for function in state.functions:
        put_function(connection, function, scope)
    _bring_transactions(connection, state, scope)
    set_phase(connection, scope.policy, Phase.FOLLOWING, event_id=state.event_id)


def _drop_what_is_gone(connection: Connection, state: SourceState, scope: Scope) -> None:
    there = {one.name for one in state.databases}
    tables = {(each.table.database, each.table.name) for each in state.tables}
    made = {(one.database, one.name) for one in state.functions}
    known = {one.name for one in catalog.all_databases(connection)}
    for source, target in scope.databases.items():
        if target not in known:
            continue
        if source not in there:
            catalog.drop_database(connection, target, cascade=True)
            continue
        for name in catalog.list_tables(connection, target):
            if (source, name) not in tables:
                catalog.drop_table(connection, target, name)
        for name in functions.list_functions(connection, target):
            if (source, name) not in made:
                functions.drop_function(connection, target, name)


def _put_table(connection: Connection, each: TableState, scope: Scope) -> None:
    table = scope.table(each.table)
    if table is None:
        return
    with_other_keys = [
        name
        for name in catalog.list_tables(connection, table.database)
        if name == table.name
        and catalog.get_table(connection, table.database, name).partition_keys != table.partition_keys
    ]
    for name in with_other_keys:  # other partition keys: another table of the same name
        catalog.drop_table(connection, table.database, name)
    put_table(connection, table)
    wanted = {spec.values: spec for spec in specs_of(each.partitions, scope)}
    known = {one.values: one for one in partitions.get_partitions(connection, table.database, table.name)}
    gone = [
        values
        for values, one in known.items()
        if values not in wanted
        or (one.location, one.storage_descriptor)
        != (wanted[values].location, wanted[values].storage_descriptor)
    ]
    place = (table.database, table.name)
    partitions.drop_partitions(connection, *place, gone, if_exists=True, write_id=lambda _: -1)
    partitions.add_partitions(
        connection, *place, list(wanted.values()), if_not_exists=True, write_id=lambda _: -1
    )


def _bring_transactions(connection: Connection, state: SourceState, scope: Scope) -> None:
    """Open, commit and abort so that each table's ValidWriteIdList means the same as at the source.

    Hive does so by ``repl_tbl_writeid_state``: an aborted transaction stands for each aborted write id. The
    target opens a transaction for each open one of the source, and ends it by the source's event.
    """
    policy = scope.policy
    for source_txn in mapped_txns(connection, policy):
        if source_txn not in state.open_txns:
            end_txn(connection, policy, source_txn, state.ended.get(source_txn, TxnState.ABORTED))
    for source_txn, write_ids in state.open_txns.items():
        target_txn = map_txn(connection, policy, source_txn)
        for (database, name), write_id in write_ids.items():
            if (target := scope.database(database)) is not None:
                force_write_id(connection, target_txn, target, name, write_id)
    for each in state.tables:
        target = scope.database(each.table.database)
        if target is not None:
            bring_write_ids(
                connection,
                target,
                each.table.name,
                policy,
                last=each.last_write_id,
                aborted=each.aborted,
                committed=each.committed,
            )
