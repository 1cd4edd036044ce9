"""Kill a member at a named place.

A member counts how often it passes each place, and dies at the pass that it was armed for.
The places are the product's own methods, wrapped in the member's process alone. The product knows
nothing of this. Each name says what has been done and what has not:

    before X        a request is about to be sent
    amid X          it is under way: etcd may carry it out before the death, after it, or never
    after X         etcd has carried it out, and its answer is not posted yet
    before Listed, before Changed
                    the list or its watch has brought something that the engine has not seen
    decided         a step has changed the member's mind, and nothing of it is carried out
    done X          this effect of a step is carried out, and the ones behind it are not
    renewal …       a keepalive is sent; answered; counted
    gained, writing, written, lost, let go, releasing, released
                    user code, between what it is told and what it does
    any moment      wherever its threads are, so many seconds after it was armed
"""

from __future__ import annotations

import collections
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from rink.engine.engine import Engine
from rink.engine.group_watch import GroupWatch
from rink.engine.requests import Requests
from rink.etcd.keepalive import KeepAliveStream
from rink.roles import BaseRole

AMID = "amid "
ANY_MOMENT = "any moment"


class Killer:
    """Count the passes from `arm` on, and die at the armed one.

    `cross` does not return at that pass.
    """

    def __init__(self, say_last: Callable[..., None]) -> None:
        self._say_last = say_last
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] | None = None
        self._place, self._nth, self._pause = "", 0, 0.0

    def arm(self, place: str = "", nth: int = 0, pause: float = 0.0) -> None:
        """Begin to count, and die at this crossing; with no place, only count."""
        with self._lock:
            self._counts = collections.Counter()
            self._place, self._nth, self._pause = place, nth, pause
        if place == ANY_MOMENT:
            timer = threading.Timer(pause, self._die)
            timer.daemon = True
            timer.start()

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts or {})

    def cross(self, place: str) -> None:
        if self._is_it(place):
            self._die()

    def amid(self, what: str, call: Callable[[], Any]) -> Any:
        """Make a call, or die soon after it has begun.

        In the second case another thread makes the call.
        """
        if self._is_it(AMID + what):
            threading.Thread(target=call, daemon=True).start()
            time.sleep(self._pause)
            self._die()
        return call()

    def _is_it(self, place: str) -> bool:
        with self._lock:
            if self._counts is None:
                return False
            self._counts[place] += 1
            return place == self._place and self._counts[place] == self._nth

    def _die(self) -> None:
        self._say_last("dying", place=self._place, nth=self._nth)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


def install(killer: Killer) -> None:
    """Put the killing places into this process.

    There is one member in it, and one killer.
    """
    _around_requests(killer)
    _around_the_view(killer)
    _around_effects(killer)
    _around_renewals(killer)
    _around_releases(killer)


def _around_requests(killer: Killer) -> None:
    ask = Requests._ask

    def asked(self: Requests, effect: Any) -> Any:
        name = type(effect).__name__
        killer.cross(f"before {name}")
        event = killer.amid(name, lambda: ask(self, effect))
        killer.cross(f"after {name}")
        return event

    Requests._ask = asked


def _around_the_view(killer: Killer) -> None:
    list_group, post = GroupWatch._list, GroupWatch._post_changes

    def listed(self: GroupWatch, *args: Any) -> None:
        killer.cross("before Listed")
        list_group(self, *args)

    def told(self: GroupWatch, number: int, changed: Any) -> None:
        killer.cross(f"before {type(changed).__name__}")
        post(self, number, changed)

    GroupWatch._list = listed
    GroupWatch._post_changes = told


def _around_effects(killer: Killer) -> None:
    carry_out = Engine._carry_out

    def carried_out(self: Engine, effects: list[Any]) -> None:
        if effects:
            killer.cross("decided")
        for effect in effects:
            carry_out(self, [effect])
            killer.cross(f"done {type(effect).__name__}")

    Engine._carry_out = carried_out


def _around_renewals(killer: Killer) -> None:
    send, renewed = KeepAliveStream.send, Engine.renewed

    def sent(self: KeepAliveStream, *args: Any) -> None:
        send(self, *args)
        killer.cross("renewal sent")

    def answered(self: Engine, *args: Any) -> None:
        killer.cross("renewal answered")
        renewed(self, *args)
        killer.cross("renewal counted")

    KeepAliveStream.send = sent
    Engine.renewed = answered


def _around_releases(killer: Killer) -> None:
    release = BaseRole.release

    def released(self: BaseRole) -> None:
        killer.cross("releasing")
        release(self)
        killer.cross("released")

    BaseRole.release = released
