"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# This machine may be busy with other things: no deadlines for single examples.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
