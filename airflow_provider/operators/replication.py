"""Replication of databases to another metastore, and failover to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, conf

from airflow_provider import exceptions
from airflow_provider.hooks.replication import ReplicationHook
from airflow_provider.hooks.task_errors import fail_unless_retryable
from airflow_provider.operators._base import flag, mapping, seconds
from airflow_provider.replication import (
    CopySettings,
    Pass,
    ReplicationPolicy,
    ReplicationSettings,
    Replicator,
    abort_failover,
    failover,
    follow_after_promotion,
    promote,
)
from airflow_provider.triggers.replication import NewEventsTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_SLACK = timedelta(minutes=5)


class ReplicationOperator(BaseOperator):
    """Base of the operators of a replication.

    :param policy: name of the replication (templated).
    :param databases: the target's database for each database of the source (templated).
    :param locations: the target's folder or URL for each folder or URL of the source with tables. In a
        mapping only the target's side is templated; in a list of pairs both sides are.
    :param source_metastore_conn_id: connection of the source's metastore (templated).
    :param target_metastore_conn_id: connection of the target's metastore (templated).
    :param source_storage_conn_id: connection of the source tables' storage; see
        :class:`~airflow_provider.hooks.table.TableHook` (templated).
    :param target_storage_conn_id: connection of the target tables' storage (templated).
    """

    template_fields: Sequence[str] = (
        "policy",
        "databases",
        "locations",
        "source_metastore_conn_id",
        "target_metastore_conn_id",
        "source_storage_conn_id",
        "target_storage_conn_id",
    )
    ui_color = "#e0f0ec"

    def __init__(
        self,
        *,
        policy: str,
        databases: Mapping[str, str],
        locations: Mapping[str, str] | Sequence[tuple[str, str]],
        source_metastore_conn_id: str,
        target_metastore_conn_id: str,
        source_storage_conn_id: str | None = None,
        target_storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.databases = databases
        self.locations = locations
        self.source_metastore_conn_id = source_metastore_conn_id
        self.target_metastore_conn_id = target_metastore_conn_id
        self.source_storage_conn_id = source_storage_conn_id
        self.target_storage_conn_id = target_storage_conn_id

    def _pair(self) -> tuple[ReplicationHook, ReplicationPolicy]:
        hook = ReplicationHook(
            self.source_metastore_conn_id,
            self.target_metastore_conn_id,
            self.source_storage_conn_id,
            self.target_storage_conn_id,
        )
        return hook, hook.get_policy(
            self.policy, mapping(self.databases, "databases"), _by_source(self.locations)
        )


class ReplicateOperator(ReplicationOperator):
    """Replicates databases of one metastore to another one, with their tables' data, under the same ids.

    ::

        ReplicateOperator(
            task_id="replicate",
            policy="dr",
            databases={"lake": "lake_copy"},
            locations={"/srv/lake": "s3://copies/lake"},
            source_metastore_conn_id="here",
            target_metastore_conn_id="there",
            follow_for=timedelta(hours=1),
            deferrable=True,
        )

    The first pass copies the source's state, and later ones apply the events since. A retry continues where
    the earlier try ended, and copies nothing twice. The result is ``policy``, ``event_id`` (the source's last
    event that is applied), ``events``, ``transactions``, ``bytes_copied``, ``files_copied`` and
    ``bootstrapped``.

    Arguments beside those of :class:`ReplicationOperator`:

    :param follow_for: seconds, or a timedelta, for which the task follows the source; one pass when None
        (templated).
    :param poll_interval: seconds between two looks at the source's log while there is nothing to do.
    :param bootstrap: whether to copy the source's state again; the task does not copy equal files
        (templated).
    :param threads: number of files that are copied at once.
    :param megabytes_per_second: copy no faster than this; no limit when None.
    :param checksum: whether contents are compared after the copy, besides sizes.
    :param deferrable: wait for new events in the triggerer, without a worker slot.
    """

    template_fields: Sequence[str] = (*ReplicationOperator.template_fields, "follow_for", "bootstrap")

    def __init__(
        self,
        *,
        follow_for: float | str | timedelta | None = None,
        poll_interval: float = 10.0,
        bootstrap: bool | str = False,
        threads: int = 8,
        megabytes_per_second: float | None = None,
        checksum: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.follow_for = follow_for
        self.poll_interval = poll_interval
        self.bootstrap = bootstrap
        self.threads = threads
        self.megabytes_per_second = megabytes_per_second
        self.checksum = checksum
        self.deferrable = deferrable
        self._is_killed = False

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any]:
        """Replicate.

        :raises AirflowFailException: for errors that no retry can avoid, such as a file that is missing at
            the source, or events that retention has removed from its log; caused by the typed error.
        :raises ReplicationLeaseError: when another replicator is running.
        """
        follow_for = seconds(self.follow_for, "follow_for")
        replicator = self._replicator()
        done = replicator.run(bootstrap=flag(self.bootstrap, "bootstrap"), is_stopped=self._stopped)
        return self._go_on(replicator, done, time.time() + (follow_for or 0.0))

    @fail_unless_retryable
    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Continue after the source's log has new events, or the time is over.

        :raises TableServiceError: the trigger's error; also see :meth:`execute`.
        """
        if event["status"] == "error":
            raise exceptions.from_dict(event["error"])
        carried, replicator = event["result"], self._replicator()
        later = replicator.run(is_stopped=self._stopped)
        return self._go_on(replicator, Pass(**carried["done"]).then(later), carried["ends"])

    def on_kill(self) -> None:
        """Make the replicator end after the event that it is applying."""
        self._is_killed = True

    def _go_on(self, replicator: Replicator, done: Pass, ends: float) -> dict[str, Any]:
        left = ends - time.time()
        if left > 0 and self.deferrable and not self._is_killed:
            self.defer(
                trigger=NewEventsTrigger(
                    after=done.event_id,
                    until=ends,
                    carries={"done": asdict(done), "ends": ends},
                    source_metastore_conn_id=self.source_metastore_conn_id,
                    target_metastore_conn_id=self.target_metastore_conn_id,
                    poke_interval=self.poll_interval,
                    deadline=ends + _SLACK.total_seconds(),
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=left) + _SLACK,
            )
        if left > 0:
            later = replicator.follow(left, poll_seconds=self.poll_interval, is_stopped=self._stopped)
            done = done.then(later)
        self.log.info("%s", done)
        return asdict(done)

    def _replicator(self) -> Replicator:
        hook, policy = self._pair()
        rate = None if self.megabytes_per_second is None else self.megabytes_per_second * 1e6
        return hook.get_replicator(
            policy, ReplicationSettings(CopySettings(self.threads, self.checksum, rate))
        )

    def _stopped(self) -> bool:
        return self._is_killed


class FailoverOperator(ReplicationOperator):
    """Makes the target of a replication the source, and the old source the target.

    ::

        FailoverOperator(task_id="hand_over", mode="planned", policy="dr", ...)

    ``planned`` stops the writers of the source, waits for their transactions, replicates everything, and
    swaps the sides: nothing is lost. ``abort`` lets the writers continue after a planned failover that has
    not finished. ``promote`` is for a source that is gone: the target takes writes from its last complete
    transaction on, and the result lists the missing transactions if the source's metastore still answers.
    ``follow`` lets the old source follow afterwards; it moves tables aside that have commits which only the
    old source has. Each mode may run again.

    The result is ``policy``, ``back`` (the replication in the other direction), ``event_id``, ``aborted`` and
    ``lacking``; for ``follow``, ``kept``, the tables that were moved aside; for ``abort`` nothing.

    Arguments beside those of :class:`ReplicationOperator`:

    :param mode: ``planned``, ``abort``, ``promote`` or ``follow`` (templated).
    :param wait: seconds, or a timedelta, for which ``planned`` waits for open transactions
        (templated).
    :param abort_open: True aborts and undoes transactions that are still open after ``wait``; False fails the
        task, and the writers stay stopped (templated).
    :param source_is_there: whether ``promote`` asks the source's metastore (templated).
    """

    template_fields: Sequence[str] = (
        *ReplicationOperator.template_fields,
        "mode",
        "wait",
        "abort_open",
        "source_is_there",
    )

    def __init__(
        self,
        *,
        mode: str,
        wait: float | str | timedelta = 600.0,
        abort_open: bool | str = False,
        source_is_there: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mode = mode
        self.wait = wait
        self.abort_open = abort_open
        self.source_is_there = source_is_there

    @fail_unless_retryable
    def execute(self, context: Context) -> dict[str, Any] | None:
        """Swap the sides.

        :raises AirflowFailException: for a wrong mode, transactions that do not end, and other errors that no
            retry can avoid; caused by the typed error.
        """
        hook, policy = self._pair()
        target = hook.target.get_metastore()
        match self.mode:
            case "planned":
                done = failover(
                    policy,
                    hook.source.get_metastore(),
                    target,
                    timeout_seconds=seconds(self.wait, "wait") or 0.0,
                    abort_open=flag(self.abort_open, "abort_open"),
                )
            case "abort":
                abort_failover(policy, hook.source.get_metastore(), target)
                return None
            case "promote":
                asks = flag(self.source_is_there, "source_is_there")
                done = promote(policy, target, source=hook.source.get_metastore() if asks else None)
            case "follow":
                kept = follow_after_promotion(policy, hook.source.get_metastore(), target)
                return {"policy": self.policy, "kept": [each.to_dict() for each in kept]}
            case _:
                raise exceptions.InvalidInputError(
                    f"mode is {self.mode!r}; give planned, abort, promote or follow", mode=self.mode
                )
        self.log.info("%s", done)
        return done.to_dict()


def _by_source(locations: Any) -> dict[str, str]:
    try:
        return dict(locations)
    except (TypeError, ValueError):
        raise exceptions.InvalidInputError(
            f"locations must be {{source: target}}, or pairs of both, not {locations!r}"
        ) from None
