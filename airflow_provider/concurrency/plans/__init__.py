"""Plans of table services: made on one snapshot, and put into the log like commits (RFC-22).

``scheduling`` makes a plan that no other plan and no commit overlaps; ``service_failures`` stops a service
that fails again and again on the same input. A new service calls :func:`schedule` with a planner of its
own.
"""

from airflow_provider.concurrency.plans.scheduling import (
    ServicePlan,
    end_of_plan,
    pending_plans,
    reserved_file_groups,
    schedule,
)
from airflow_provider.concurrency.plans.service_failures import (
    MAX_FAILURES,
    Service,
    check_failures,
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
    "check_failures",
    "check_not_stopped",
    "clear_failures",
    "end_of_plan",
    "failures",
    "log_head",
    "pending_plans",
    "reserved_file_groups",
    "schedule",
    "stopping_itself",
]
