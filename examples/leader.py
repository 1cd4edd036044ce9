"""Three processes, one leader at a time: the first example of Rink's first README.

The interesting part is `be_a_member`. The rest starts three of them, kills the leader, asks the
next one to leave, and prints how long nobody led. It ends by itself after some ten seconds.
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
PATIENCE = 60.0  # seconds without a word from any member: then something is wrong


def be_a_member(endpoint: str, name: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the two `with` below leave orderly
    with (
        rink.Session(endpoint, ttl=TTL) as session,
        rink.Rink(
            session,
            "leader-example",
            name=name,
            # With "first" the leader stays where it is until its process goes; the default scheme
            # spreads roles over all processes, so it moves some when the group grows.
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
                # `lost` fires when the role is to be given up. Whatever this process changes
                # elsewhere as the leader should carry role.token, as the flights example does.
                while not role.lost.wait(0.1):
                    pass  # lead
                say("stops")
            # Then just try again.


def say(what: str) -> None:
    """Tell the onlooker, with the time on the clock that all processes of a machine share."""
    print(f"{time.monotonic()} {what}\n", end="", flush=True)  # whole: two threads say things


class Onlooker:
    """Starts the members and listens to what they say."""

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
        """Print the next thing that is said, and note who leads, since when, and all ranks."""
        try:
            at, name, what = self.heard.get(timeout=PATIENCE)
        except queue.Empty:
            sys.exit(f"no member has said anything for {PATIENCE:g} s; is etcd well?")
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
        # Newcomers to a group that has only just begun are let in after two seconds.
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
    told = parser.parse_args()
    if told.member:
        be_a_member(told.endpoint, told.member)
    elif told.endpoint:
        look_on(told.endpoint)
    else:
        with local_etcd() as etcd:
            look_on(etcd.endpoint)


if __name__ == "__main__":
    main()
