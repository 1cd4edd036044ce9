"""What all fast tests share: a busy machine fails none of them."""

from hypothesis import HealthCheck, settings

# How long an example takes, or takes to be made, proves nothing.
settings.register_profile("rink", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rink")
