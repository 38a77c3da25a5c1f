"""The execution of pending plans, and of another one, for table compactions and log compactions alike."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_provider.concurrency.plans import pending_plans
from airflow_provider.exceptions import NoSuchInstantError, WriteConflictError
from airflow_provider.services.compaction import CompactionResult
from airflow_provider.table.hudi_table import HudiTable
from airflow_provider.table.timeline import Action

log = logging.getLogger(__name__)


def run_plans(
    table: HudiTable,
    action: Action,
    run: Callable[[str], CompactionResult | None],
    plan_another: Callable[[], str | None],
) -> list[CompactionResult]:
    """Execute the pending plans that no process executes now, then another one if it is due.

    A pending plan is dropped if later commits have touched all its file groups.

    :param table: the table.
    :param action: the action of the plans.
    :param run: executes the plan of a requested time; a plan that loses a conflict is rolled back.
    :param plan_another: puts another plan, and returns its requested time; None when none is due.
    :return: one result for each plan that was executed, the new one last.
    :raises WriteConflictError: when every file group of the new plan is in conflict.
    """
    done: list[CompactionResult] = []

    def execute(instant: str) -> None:
        try:
            result = run(instant)
        except NoSuchInstantError as error:
            log.info("%s", error)  # another process took the plan first
        else:
            done.extend(() if result is None else (result,))

    for instant in pending_plans(table, action, idle=True):
        try:
            execute(instant)
        except WriteConflictError as error:
            if instant in pending_plans(table, action):
                raise
            log.warning("%s; %s plan %s is rolled back", error, action, instant)
    if (new := plan_another()) is not None:
        execute(new)
    return done
