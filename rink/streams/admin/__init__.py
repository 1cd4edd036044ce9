"""What an operator sees and does, as plain async functions: what `rink streams` is made of.

    async with app:
        for one in await admin.lag(app):
            if one.parked: ...

All of it works while workers run. What is seen is not one moment: each partition is looked at by itself.
"""

from rink.streams.admin.lag import Lag, lag

__all__ = ["Lag", "lag"]
