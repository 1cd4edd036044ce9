"""Connect a guard to the cluster of the tests.

The connecting function can be pickled, whichever `conftest` was imported first.
"""

import attrs
from redis import RedisCluster


@attrs.frozen
class ToCluster:
    url: str

    def __call__(self):
        return RedisCluster.from_url(self.url, socket_timeout=10)
