"""Find the proof of another history of etcd, and stop grants (R11).

An etcd that lost its volume, or was restored from a copy, begins another history behind the same
address. Members that are cut off at that time still hold roles by the old history, and etcd does
not show it. The client's guard notices another cluster id, and a lower raft term or revision, but
none of the three needs to differ. A member finds the proof of another history in its own data:

* its own record, of the same incarnation, at a lower revision than etcd has answered before. The
  member's later write is not in this history.
* the newest version of the view before, now at another revision. A version is written only once.
* a newest version with a lower number than before. Numbers only rise.
* another member's record at a lower revision than in the view before. Within one history, the
  revision of a record only rises, even if the record is deleted and created again.

A view is replaced only by a list, so each list is checked for the last three. A missing record is
an ordinary lost session. A single missing version proves nothing, since old versions are pruned.

A member that has proof does not know which members are cut off. It waits, by its own clock, for the
largest TTL that it has seen. By then each of them has noticed the change, or is past its deadline.
"""

from __future__ import annotations

import math

import attrs

from rink.core.effects import Level, PostRequest
from rink.core.outbox import Outbox
from rink.core.record_writer import Writer
from rink.core.values import Request, Wish
from rink.core.view import View

POST_INTERVAL_S = 10.0
"""Interval between two requests for a higher token base, in seconds."""


@attrs.define
class EtcdHistory:
    """Keep the facts of earlier views that a later view must not contradict.

    `number` and `mod_revision` belong to the last view's newest version, or are 0. `records` has
    the mod_revision of each record. `ttl` is the largest TTL of all records in all such views, in
    seconds. `token` is the highest token that a grant by one of these views could have. Grants wait
    until `grants_from`, a reading of the member's clock. They also wait while `token_floor` is not
    0. It becomes 0 when new tokens are above it. The request for a higher token base is posted at
    `post_at`, and again if the first one has no effect.
    """

    number: int = 0
    mod_revision: int = 0
    records: dict[str, int] = attrs.field(factory=dict)
    ttl: int = 0
    token: int = 0
    grants_from: float = -math.inf
    token_floor: int = 0
    post_at: float = -math.inf

    def keep(self, view: View, token_base: int) -> None:
        """Keep the facts of a view that is about to be dropped or replaced."""
        if not view.revision:
            return
        newest = view.newest
        self.number, self.mod_revision = (newest.number, newest.mod_revision) if newest else (0, 0)
        self.records = {name: member.mod_revision for name, member in view.members.items()}
        records = [member.record for member in view.members.values() if member.record is not None]
        self.ttl = max([self.ttl, *(record.ttl for record in records)])
        self.token = max(self.token, token_base + view.revision)

    def contradiction(self, after: View, name: str) -> str:
        """Return how the view of a new list proves another history, or "".

        `keep` has seen the view that the list is to replace, or that was thrown away. The record of
        the member `name` itself is left out, since the member judges it by its answered writes.
        """
        newest = after.newest.number if after.newest else 0
        if newest < self.number:
            return f"the newest version in etcd was {self.number} and is now {newest}"
        version = after.versions.get(self.number)
        if version is not None and version.mod_revision != self.mod_revision:
            was, now = self.mod_revision, version.mod_revision
            return f"version {self.number} was written at etcd's revision {was}, now at {now}"
        for other, member in after.members.items():
            was, now = self.records.get(other, 0), member.mod_revision
            if other != name and now < was:
                return f"the record of {other!r} was written at etcd's revision {was}, now at {now}"
        return ""

    def wait(self, now: float) -> None:
        """Stop grants for the largest TTL seen."""
        self.grants_from = max(self.grants_from, now + self.ttl)

    def begin_anew(self, because: str, now: float, out: Outbox) -> None:
        """Begin another history, and stop grants for the largest TTL seen."""
        self.wait(now)
        self.token_floor = max(self.token_floor, self.token)
        self.number, self.mod_revision, self.records = 0, 0, {}
        text = f"{because}: etcd has another history (restored, or its volume lost)"
        follows = f"Every role is lost; this member grants nothing for at least {self.ttl} s"
        out.report(Level.ERROR, f"{text}. {follows}")

    def raise_tokens(self, view: View, writer: Writer, now: float, out: Outbox) -> None:
        """Request a higher token base while new tokens would be too low."""
        if not self.token_floor or view.version is None or not writer.is_settled:
            return
        if view.version.token_base + view.revision > self.token_floor:
            self.token_floor = 0
        elif now < self.post_at:
            out.wake(self.post_at if self.post_at < math.inf else None)
        else:
            self.post_at = math.inf  # until the post is answered
            request = Request(Wish.TOKEN_BASE, token_base=self.token_floor)
            out.do(PostRequest(writer.incarnation, request))

    def posted(self, now: float) -> None:
        """Schedule the next post, in case this one has no effect."""
        self.post_at = now + POST_INTERVAL_S

    def why_closed(self, now: float) -> str:
        """Return why nothing may be granted now, or an empty string."""
        if now < self.grants_from:
            return (
                "etcd has another history than before (restored, or its volume was lost): members "
                "that are cut off may still hold roles by the earlier history, so nothing is "
                "granted yet"
            )
        if self.token_floor:
            return (
                f"fencing tokens up to {self.token_floor} may have been given in an earlier "
                "history of etcd, and new tokens would not be higher: the token base is being "
                "raised"
            )
        return ""
