"""Plans of table services: scheduled on a static view, published like commits (RFC-22)."""

from airflow_provider.concurrency.plans.scheduling import ServicePlan, reserved_file_groups, schedule
from airflow_provider.concurrency.plans.service_failures import (
    MAX_FAILURES,
    Service,
    check_not_stopped,
    clear_failures,
    failures,
    log_head,
    stopping_itself,
)

__all__ = [
    "MAX_FAILURES",
    "Service",
    "ServicePlan",
    "check_not_stopped",
    "clear_failures",
    "failures",
    "log_head",
    "reserved_file_groups",
    "schedule",
    "stopping_itself",
]
