"""The consumers of a metastore's notification log, and its open transactions."""

from __future__ import annotations

import time
from typing import Any

from airflow_provider.exceptions import EventsExpiredError
from airflow_provider.metastore import AnyMetastore, NotificationEvent, TxnState
from airflow_provider.reports.timeline_report import who

_MOST_TXNS = 200
_FEWEST_LOOKED_AT = 256  # events read at a time; few of them may match


def report_consumers(metastore: AnyMetastore) -> list[dict[str, Any]]:
    """The consumers of the notification log, how far each is, and for whom retention keeps events.

    :param metastore: a metastore of this package, or a server of one.
    :return: JSON-able: ``consumer``, ``event_id``, ``behind`` (events), ``silent_seconds``,
        ``expiry_seconds``, ``live`` and ``holds_back_retention``; of a replica also ``hits`` and ``misses``,
        the reads that its memory and the database have answered, else None.
    """
    head, found = metastore.current_event_id(), metastore.consumers()
    slowest = min((each.event_id for each in found if each.is_live), default=head)
    return [
        {
            "consumer": each.name,
            "event_id": each.event_id,
            "behind": max(0, head - each.event_id),
            "silent_seconds": round(each.silent_seconds, 1),
            "expiry_seconds": each.expiry_seconds,
            "hits": each.hits,
            "misses": each.misses,
            "live": each.is_live,
            "holds_back_retention": each.is_live and each.event_id == slowest < head,
        }
        for each in found
    ]


def report_metastore(metastore: AnyMetastore) -> dict[str, Any]:
    """The notification log of a metastore, and its open transactions.

    :param metastore: the metastore.
    :return: JSON-able: ``head`` (the last event's id), ``consumers`` (see :func:`report_consumers`),
        ``transactions`` (``txn_id``, ``age_seconds``, ``silent_seconds``, ``who``, ``agent``, ``writes``) and
        ``more_transactions`` (how many are open beyond those).
    """
    snapshot = metastore.valid_txn_list()
    opened = [each for each in snapshot.exceptions if not snapshot.is_aborted(each)]
    return {
        "head": metastore.current_event_id(),
        "consumers": report_consumers(metastore),
        "transactions": [each for each in (_txn(metastore, i) for i in opened[:_MOST_TXNS]) if each],
        "more_transactions": max(0, len(opened) - _MOST_TXNS),
    }


def report_write_ids(metastore: AnyMetastore, database: str, table: str) -> dict[str, Any]:
    """The write ids of a table that a reader sees, and the transactions of the open ones.

    :param metastore: the metastore in which the table is registered.
    :param database: the table's database.
    :param table: the table's name.
    :return: JSON-able: ``high_watermark``, ``open`` (``write_id`` and its transaction, see
        :func:`report_metastore`) and ``aborted`` (the newest write ids of aborted transactions).
    :raises NoSuchObjectError: when the metastore does not know the table.
    """
    seen = metastore.valid_write_id_list(database, table)
    name = f"{database}.{table}"
    opened = [
        {"write_id": write["write_id"], **txn}
        for txn in report_metastore(metastore)["transactions"]
        for write in txn["writes"]
        if write["table"] == name
    ]
    return {
        "high_watermark": seen.high_watermark,
        "open": opened,
        "aborted": [each for each in seen.exceptions if seen.is_aborted(each)][-_MOST_TXNS:],
    }


def newest_events(metastore: AnyMetastore, most: int, **of: Any) -> list[NotificationEvent]:
    """The newest events of the notification log, oldest first.

    :param most: how many events at most.
    :param of: a filter; see :meth:`~airflow_provider.metastore.AnyMetastore.next_events`.
    """
    found: list[NotificationEvent] = []
    start, step = metastore.current_event_id(), max(most, _FEWEST_LOOKED_AT)
    while len(found) < most and start > 0 and step > 0:
        begin = max(0, start - step)
        try:
            window = metastore.next_events(begin, start - begin, **of)
        except EventsExpiredError:  # the log begins within the window
            step //= 2
            continue
        found = [each for each in window if each.event_id <= start] + found
        start = begin
    return found[-most:] if most > 0 else []


def _txn(metastore: AnyMetastore, txn_id: int) -> dict[str, Any] | None:
    txn = metastore.get_txn(txn_id)
    if txn.state is not TxnState.OPEN:  # the transaction has ended just now
        return None
    now = time.time()
    return {
        "txn_id": txn_id,
        "age_seconds": max(0.0, now - txn.opened_at),
        "silent_seconds": max(0.0, now - txn.heartbeat_at),
        "user": txn.user,
        "host": txn.host,
        "agent": txn.agent,
        "who": who(txn.agent),
        "writes": [
            {"table": f"{each.database}.{each.table}", "write_id": each.write_id, "instant": each.instant}
            for each in metastore.writes_of(txn_id)
        ],
    }
