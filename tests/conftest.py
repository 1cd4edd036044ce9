"""Keep a busy machine from failing fast tests."""

from hypothesis import HealthCheck, settings

# How long an example takes, or takes to be made, proves nothing.
settings.register_profile("rink", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rink")
