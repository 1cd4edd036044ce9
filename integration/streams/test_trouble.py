"""Test failures of workers that need real servers."""

import pytest
from workers_support import Leg, with_shop

from rink.errors import EtcdError
from rink.streams import App, Worker

pytestmark = pytest.mark.waits


@with_shop()
async def test_without_etcd_a_worker_ends_with_one_error_that_says_so(shop):
    app = App(
        "shop",
        redis=shop.servers.server.url,
        etcd="http://127.0.0.1:1",
        ttl=3,
        session={"timeout": 0.5},
    )
    legs = app.stream("legs", record=Leg, partition_by="who", partition_count=2)
    for name in ("bill", "ship"):
        app.processor(legs, name=name)(_note)
    with pytest.raises(EtcdError, match=r"http://127\.0\.0\.1:1"):
        await Worker(app).run()
    await app.close()


async def _note(events):
    pass
