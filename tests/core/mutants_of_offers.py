"""Break `handover_wait`: who offers, who takes, when the wait is over."""

from __future__ import annotations

from mutant import Mutant, core


def worker(what: str, module: str, old: str, new: str) -> Mutant:
    """Return one in how a worker leaves."""
    return Mutant(what, f"rink/{module}.py", old, new, ("streams/test_leaving_workers",))


OFFERS = [
    core(
        "a member that offers says that it leaves",
        "lifecycle",
        "            return Phase.OFFERING\n",
        "            return Phase.LEAVING\n",
        "offering",
    ),
    core(
        "a member that offers does not serve",
        "lifecycle",
        "return self.state in (Life.ACTIVE, Life.OFFERING, Life.LEAVING)\n",
        "return self.state in (Life.ACTIVE, Life.LEAVING)\n",
        "offering",
    ),
    core(
        "an offer never ends",
        "lifecycle",
        "            if situation.is_used and now < self.offer_until:\n",
        "            if situation.is_used:\n",
        "offering",
    ),
    core(
        "an offer goes on though nobody is served",
        "lifecycle",
        "            if situation.is_used and now < self.offer_until:\n",
        "            if now < self.offer_until:\n",
        "offering",
    ),
    core(
        "a member that serves nobody begins to offer",
        "lifecycle",
        "        if event.now or is_bounded or not situation.is_used or not self.handover_wait:\n",
        "        if event.now or is_bounded or not self.handover_wait:\n",
        "offering",
    ),
    core(
        "the last release of an offered rank is not heard of",
        "holds",
        "        return is_awaited or (self.is_offered and not self.is_used)\n",
        "        return is_awaited\n",
        "offering",
    ),
    core(
        "the last wait of an offered rank ends unheard",
        "holds",
        "            return self.is_offered and not self.is_used\n",
        "            return False\n",
        "offering",
    ),
    core(
        "a lost session does not end an offer",
        "member_state",
        "serves = self.share is not None and self.member_lease.is_alive and self.writer.exists\n",
        "serves = self.share is not None and self.writer.exists\n",
        "offering",
    ),
    core(
        "a second leave ends an offer",
        "lifecycle",
        "            if event.now and self.state is Life.OFFERING:\n",
        "            if self.state is Life.OFFERING:\n",
        "offering",
    ),
    core(
        "a second leave in a hurry ends no offer",
        "lifecycle",
        "            if event.now and self.state is Life.OFFERING:\n",
        "            if False:\n",
        "offering",
    ),
    core(
        "a first leave in a hurry offers",
        "lifecycle",
        "        if event.now or is_bounded or not situation.is_used or not self.handover_wait:\n",
        "        if is_bounded or not situation.is_used or not self.handover_wait:\n",
        "offering",
    ),
    core(
        "a leave with a bound of its own offers",
        "lifecycle",
        "        if event.now or is_bounded or not situation.is_used or not self.handover_wait:\n",
        "        if event.now or not situation.is_used or not self.handover_wait:\n",
        "offering",
    ),
    core(
        "a member that offers leaves for a successor that has claimed nothing",
        "handover",
        "max(now + CLAIM_TIMEOUT_S, offer_until)",
        "now + CLAIM_TIMEOUT_S",
        "offering",
    ),
    core(
        "a successor that claims nothing is waited for after the offer",
        "member",
        "        offer_until = self.living.offer_until if self.living.state is Life.OFFERING else "
        "now\n",
        "        offer_until = self.living.offer_until\n",
        "handover",
        "offering",
    ),
    core(
        "the group grows for a newcomer whose turn is next",
        "ranks",
        "    growing = waiting[len(leaving) :]\n",
        "    growing = waiting\n",
        "ranks",
    ),
    core(
        "nobody takes an offered rank",
        "ranks",
        "    return _Turn.OFFERED if member.phase is Phase.OFFERING else None\n",
        "    return None\n",
        "ranks",
        "offering",
    ),
    core(
        "the lowest offer is taken first, not the longest",
        "ranks",
        "        (turn, since.get(name, 0.0), rank)\n",
        "        (turn, 0.0, rank)\n",
        "ranks",
    ),
    core(
        "offered ranks go before those that nobody serves",
        "ranks",
        "    for turn, _, rank in sorted(turns):\n",
        "    for turn, _, rank in sorted(turns, reverse=True):\n",
        "ranks",
    ),
    core(
        "a member that offers is moved where the group shrinks",
        "ranks",
        "    never_move = reserved.keys() | {*leaving, *offering}\n",
        "    never_move = reserved.keys() | {*leaving}\n",
        "ranks",
    ),
    core(
        "ranks of a group that ended are not kept for its successors",
        "ranks",
        "    if name in situation.emptied_since:\n",
        "    if False:\n",
        "ranks",
        "offering",
    ),
    core(
        "ranks of a group that ended are kept for leave_delay alone",
        "ranks",
        "        if settings.handover_wait > delay:\n",
        "        if False:\n",
        "ranks",
        "offering",
    ),
    core(
        "a record that outlives its member makes a group that ended shrink",
        "observed_times",
        "        if ranked.isdisjoint(active):\n",
        "        if ranked.isdisjoint(view.records.roster.place.keys()):\n",
        "observed_times",
    ),
    core(
        "ranks of a group that ended are kept since its first member left",
        "observed_times",
        "            self.emptied_since = dict.fromkeys(ranked, now)\n",
        "            self.emptied_since = dict.fromkeys(ranked, now) | self.emptied_since\n",
        "observed_times",
    ),
    core(
        "an offer is new with each look",
        "observed_times",
        "        self.offering_since = {name: since.get(name, now) for name in offering}\n",
        "        self.offering_since = dict.fromkeys(offering, now)\n",
        "observed_times",
    ),
    core(
        "newcomers of a rollout make a young group grow",
        "observed_times",
        "        if offering:\n            self.started_at = None\n",
        "",
        "observed_times",
        "offering",
    ),
    core(
        "a member that offers has no say in the scheme",
        "next_version",
        "if member.record is not None and (member.is_active or member.is_offering)\n",
        "if member.record is not None and member.is_active\n",
        "next_version",
    ),
    worker(
        "the first group that a worker leaves ends the waits of the others",
        "streams/consumer/executor",
        "    if not ended.cancelled() and ended.exception() is not None:\n",
        "    if ended.cancelled() or ended.exception() is not None:\n",
    ),
    worker(
        "a worker whose reader has failed waits for a successor",
        "streams/consumer/executor",
        "    if not ended.cancelled() and ended.exception() is not None:\n",
        "    if False:\n",
    ),
    worker(
        "a reader that fails while its worker leaves is passed over",
        "streams/consumer/executor",
        "            raise error  # the reader failed while the worker waited for a successor\n",
        "            pass\n",
    ),
    worker(
        "a worker that fails before it leaves waits for a successor",
        "streams/consumer/executor",
        "                orders.hurry()\n                raise\n",
        "                raise\n",
    ),
    worker(
        "a leave that is cancelled waits for a successor",
        "streams/consumer/membership",
        "        await outlast([asyncio.create_task(rink.leave(wait=True, now=True))])\n",
        "        await outlast([left])\n",
    ),
    worker(
        "a leave hears no order to hurry",
        "streams/consumer/membership",
        "        if not left.done():\n",
        "        if False:\n",
    ),
]
