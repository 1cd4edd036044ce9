"""Three processes, one leader at a time: the first example of Rink's first README.

The interesting part is `be_a_member`. The rest starts three of them, kills the leader, asks the
next one to leave, and prints how long nobody led. It ends by itself after some ten seconds.
"""

import argparse
import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time

import rink
from rink.testing import local_etcd

TTL = 3.0


def be_a_member(endpoint: str, name: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the two `with` below leave orderly
    with (
        rink.Session(endpoint, ttl=TTL) as session,
        rink.Rink(session, "leader-example", name=name, rebalance_delay=2.0) as r,
    ):
        say("joined")
        while True:
            # Block until this process assumes the role.
            with r.await_role("leader") as role:
                say(f"leads {role.token}")
                # `lost` fires when the role is to be given up. Whatever this process changes
                # elsewhere as the leader should carry role.token, as the flights example does.
                while not role.lost.wait(0.1):
                    pass  # lead
                say("stops")
            # Then just try again.


def say(what: str) -> None:
    """Tell the onlooker, with the time on the clock that all processes of a machine share."""
    print(time.monotonic(), what, flush=True)


class Onlooker:
    """Starts the members and listens to what they say."""

    def __init__(self, endpoint: str) -> None:
        self.began = time.monotonic()
        self.heard: queue.Queue[tuple[float, str, str]] = queue.Queue()
        self.members = {name: self.start(endpoint, name) for name in ("anna", "bert", "carl")}

    def start(self, endpoint: str, name: str) -> subprocess.Popen:
        member = subprocess.Popen(
            [sys.executable, __file__, "--member", name, "--endpoint", endpoint],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the onlooker, which stops them all
        )
        threading.Thread(target=self.listen, args=(name, member), daemon=True).start()
        return member

    def listen(self, name: str, member: subprocess.Popen) -> None:
        for line in member.stdout:
            at, _, what = line.rstrip("\n").partition(" ")
            self.heard.put((float(at), name, what))

    def watch(self, seconds: float) -> tuple[str, float]:
        """Print what is said for some seconds; who took the lead last, and when."""
        leader, since, until = "", 0.0, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                at, name, what = self.heard.get(timeout=left)
                self.print(at, f"{name} {what.replace('leads', 'leads, with token')}")
                if what.startswith("leads"):
                    leader, since = name, at
        return leader, since

    def print(self, at: float, text: str) -> None:
        print(f"{at - self.began:6.2f} s  {text}", flush=True)

    def stop(self) -> None:
        for member in self.members.values():
            member.kill()
            member.wait()


def look_on(endpoint: str) -> int:
    onlooker = Onlooker(endpoint)
    try:
        # Newcomers to a group that has only just begun are let in after two seconds.
        leader, _ = onlooker.watch(4)

        at = time.monotonic()
        onlooker.members[leader].kill()
        onlooker.print(at, f"{leader} is killed: its lease of {TTL:g} s has to run out")
        second, since = onlooker.watch(TTL + 1.5)
        onlooker.print(since, f"nobody led for {since - at:.2f} s")

        at = time.monotonic()
        onlooker.members[second].terminate()
        onlooker.print(at, f"{second} is asked to leave: it hands over first")
        third, since = onlooker.watch(1.5)
        onlooker.print(since, f"{third} led {1000 * (since - at):.0f} ms after the request")
        return 0 if len({leader, second, third, ""}) == 4 else 1
    finally:
        onlooker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help="use this etcd instead of starting one")
    told = parser.parse_args()
    if told.member:
        be_a_member(told.endpoint, told.member)
        return 0
    if told.endpoint:
        return look_on(told.endpoint)
    with local_etcd() as etcd:
        return look_on(etcd.endpoint)


if __name__ == "__main__":
    sys.exit(main())
