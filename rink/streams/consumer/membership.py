"""Join and leave a group by a worker's orders."""

from __future__ import annotations

import asyncio

from rink import aio
from rink._cancel import end, outlast, run_unless


class Orders:
    """Hold a worker's orders.

    Attributes:
        leave: set when the worker must leave its groups.
        now: set when the worker must leave without waiting for a successor.
    """

    def __init__(self) -> None:
        self.leave = asyncio.Event()
        self.now = asyncio.Event()

    def hurry(self) -> None:
        """Order the worker to leave without waiting for a successor."""
        self.now.set()
        self.leave.set()


async def join(rink: aio.Rink, orders: Orders) -> bool:
    """Join a group, unless the worker must leave before.

    A join may take long while another member has the name.

    Returns:
        True if the group was joined, and must be left.
    """
    return await run_unless(orders.leave, rink.join())


async def leave(rink: aio.Rink, orders: Orders) -> None:
    """Leave a group, even if this is cancelled meanwhile.

    The member serves until a successor takes over, or until the wait ends. Then it waits for the
    release of the roles, as long as `grace` allows. A cancellation ends the wait for a successor.
    """
    left = asyncio.create_task(rink.leave(wait=True, now=orders.now.is_set()))
    hurried = asyncio.create_task(orders.now.wait())
    try:
        await asyncio.wait([left, hurried], return_when=asyncio.FIRST_COMPLETED)
        if not left.done():
            await asyncio.shield(asyncio.create_task(rink.leave(wait=True, now=True)))
        await asyncio.shield(left)
    except asyncio.CancelledError:
        orders.hurry()
        await outlast([asyncio.create_task(rink.leave(wait=True, now=True))])
        raise
    finally:
        await end([hurried])
