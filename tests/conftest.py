"""What all fast tests share: a busy machine fails none of them."""

from hypothesis import settings

settings.register_profile("rink", deadline=None)  # how long an example takes proves nothing
settings.load_profile("rink")
