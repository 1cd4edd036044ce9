"""Count what each customer ordered: replace this app by your own.

    rink send shop:app orders '{"customer": "ann", "amount": 3}'

The manifest sets the environment. `rink worker` and Rink read the variables that begin with RINK_.
"""

import logging
import os
from pathlib import Path

from rink.streams import App, Events, Record

log = logging.getLogger("shop")


def session() -> dict[str, str]:
    """Return the certificate settings, or none if the Secret is absent."""
    folder = Path(os.environ.get("CERTIFICATES", "/certificates"))
    if not (folder / "ca.crt").exists():
        return {}
    files = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
    return {setting: str(folder / file) for setting, file in files.items()}


app = App(
    "shop", redis=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), ttl=20, session=session()
)


class Order(Record):
    """Hold an order as it lies in the stream."""

    customer: str
    amount: int


orders = app.stream("orders", record=Order, partition_by="customer", partition_count=16)


@app.on_worker_start
async def say_revision() -> None:
    """Log which revision of the Deployment this pod is of."""
    log.info("revision %s", os.environ.get("POD_REVISION", "unknown"))


@app.processor(orders, rebalance_delay=60)  # longer than one pod takes to replace another
async def bill(events: Events[Order]) -> None:
    """Process the orders of each customer in order."""
    async for order in events.records():
        log.info("%s ordered %d", order.customer, order.amount)
