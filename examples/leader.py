"""Run three processes with one leader at a time.

The interesting part is `be_a_member`. The rest starts three members, kills the leader, asks the
next one to leave, and prints how long no member led. It ends by itself after some ten seconds.
"""

import argparse
import queue
import signal
import subprocess
import sys
import threading
import time

import rink
from rink.testing import local_etcd

TTL = 3.0
SCHEME = "first"
MESSAGE_TIMEOUT_S = 60.0  # without a message from any member


def be_a_member(endpoint: str, name: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the two `with` below leave orderly
    with (
        rink.Session(endpoint, ttl=TTL) as session,
        rink.Rink(
            session,
            "leader-example",
            name=name,
            # With "first" the leader stays until its process goes. The default scheme spreads roles
            # over all processes, so it moves some roles when the group grows.
            scheme=SCHEME,
            rebalance_delay=2.0,
            on_rank_change=lambda rank: say(f"has rank {rank}"),
        ) as r,
    ):
        say("joined")
        while True:
            # Block until this process assumes the role.
            with r.await_role("leader") as role:
                say(f"leads {role.token}")
                # `lost` fires when the role must be given up. Every change elsewhere by the leader
                # should carry role.token, as in the flights example.
                while not role.lost.wait(0.1):
                    pass  # lead
                say("stops")
            # Then just try again.


def say(what: str) -> None:
    """Send a message to the onlooker, with the time of the machine's clock."""
    print(f"{time.monotonic()} {what}\n", end="", flush=True)  # one call, since two threads print


class Onlooker:
    """Start the members, and read their messages."""

    def __init__(self, endpoint: str) -> None:
        self.began = time.monotonic()
        self.heard: queue.Queue[tuple[float, str, str]] = queue.Queue()
        self.leader, self.since = "", 0.0
        self.ranks: dict[str, str] = {}
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

    def hear(self) -> None:
        """Print the next message; note the leader, its start, and all ranks."""
        try:
            at, name, what = self.heard.get(timeout=MESSAGE_TIMEOUT_S)
        except queue.Empty:
            sys.exit(f"no member has said anything for {MESSAGE_TIMEOUT_S:g} s; is etcd well?")
        self.print(at, f"{name} {what.replace('leads', 'leads, with token')}")
        if what.startswith("leads"):
            self.leader, self.since = name, at
        elif what.startswith("has rank"):
            self.ranks[name] = what.removeprefix("has rank ")

    def hear_until_settled(self) -> str:
        """Wait until all have a rank and the role's owner leads; return its name."""
        owner = str(rink.rank_of("leader", len(self.members), SCHEME))
        while len(self.ranks) < len(self.members) or self.ranks.get(self.leader) != owner:
            self.hear()
        return self.leader

    def hear_until_another_leads(self) -> str:
        before = self.leader
        while self.leader == before:
            self.hear()
        return self.leader

    def print(self, at: float, text: str) -> None:
        print(f"{at - self.began:6.2f} s  {text}", flush=True)

    def stop(self) -> None:
        for member in self.members.values():
            member.kill()
            member.wait()


def look_on(endpoint: str) -> None:
    onlooker = Onlooker(endpoint)
    try:
        # A group that has only just begun lets newcomers in after two seconds.
        leader = onlooker.hear_until_settled()

        at = time.monotonic()
        onlooker.members[leader].kill()
        onlooker.print(at, f"{leader} is killed: its lease of {TTL:g} s has to run out")
        second = onlooker.hear_until_another_leads()
        onlooker.print(onlooker.since, f"nobody led for {onlooker.since - at:.2f} s")

        at = time.monotonic()
        onlooker.members[second].terminate()
        onlooker.print(at, f"{second} is asked to leave: it hands over first")
        third = onlooker.hear_until_another_leads()
        took = 1000 * (onlooker.since - at)
        onlooker.print(onlooker.since, f"{third} led {took:.0f} ms after the request")
    finally:
        onlooker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help="use this etcd instead of starting one")
    options = parser.parse_args()
    if options.member:
        be_a_member(options.endpoint, options.member)
    elif options.endpoint:
        look_on(options.endpoint)
    else:
        with local_etcd() as etcd:
            look_on(etcd.endpoint)


if __name__ == "__main__":
    main()
