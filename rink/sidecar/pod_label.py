"""Decide which labels the own pod needs, and which request to send next.

The label of a role is on the pod while a consumer holds the role, so a Service can select the
holder. It is a hint, never a fence: a killed sidecar leaves it behind, so two pods may have it.

This module is pure. It computes the wanted labels from the currently held roles. There is no queue
of changes: each request states all labels of this sidecar, so the latest request suffices.

**An old request must not undo a newer one.** Only one request is in flight at a time. The API
server drops a request that it has not executed within `TIMEOUT_MS`. Until then, a request without
an answer may still take effect. So the labels are sent once more, `UNSURE_MS` after such a request
has failed.
"""

from __future__ import annotations

import math
import re

import attrs

from rink.core.retry_delay import backoff
from rink.errors import ConfigError
from rink.sidecar.consumer_turns import ConsumerTurns

PREFIX = "etcd-rink/"
"""The beginning of each label's key. The policy of deploy/sidecar/label allows only such keys."""
HELD = "held"
"""The value of each label."""
TIMEOUT_MS = 2_000
UNSURE_MS = 2 * TIMEOUT_MS
"""Time in which a request without an answer may take effect: transfer and the server's limit."""
RELEASE_WAIT_S = 2.0
"""The maximum wait of a release for its label, from the last change of the wanted labels."""
MAX_PAUSE_S = 60.0
EARLY_MS = 2_000
"""Time before the end of a turn at which its label is removed, if the end is not moved on."""
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

Roles = frozenset[str]
NONE: Roles = frozenset()


def check_label_name(role: str) -> None:
    """Refuse a role's name that cannot be part of a label's key.

    Raises:
        ConfigError: the name has other characters, or is too long.
    """
    if not LABEL_NAME.fullmatch(role):
        raise ConfigError(
            f"--label-pod {role!r}: this role name cannot be a label of Kubernetes: use at most 63 "
            "of A-Z, a-z, 0-9, '-', '_' and '.', with a letter or a digit at both ends"
        )


def labels_of(roles: Roles, labelled: Roles) -> dict[str, str | None]:
    """Return the labels as a merge patch: None takes a label off.

    `labelled` has all roles of `--label-pod`.
    """
    return {PREFIX + role: HELD if role in roles else None for role in sorted(labelled)}


def wanted_labels(turns: ConsumerTurns, labelled: Roles, now_ms: int) -> tuple[Roles, float]:
    """Return the roles whose labels must be on the pod, and until which time.

    A label is removed when its role is lost, while the consumer still stops. It is also removed
    `EARLY_MS` before an end that is not moved on, because the session is lost or the consumer is
    gone. An end is moved on when a third of `--hold` has passed. So with a `--hold` below 6 s, the
    label is removed a third of `--hold` before the end.
    """
    early_ms = min(EARLY_MS, turns.hold_ms // 3)
    wanted: set[str] = set()
    until_ms = math.inf
    for role in labelled:
        turn = turns.turn(role)
        if turn is None or turn.lost_at_ms is not None or now_ms >= turn.until_ms - early_ms:
            continue
        wanted.add(role)
        until_ms = min(until_ms, turn.until_ms - early_ms)
    return frozenset(wanted), until_ms


@attrs.frozen
class Send:
    """Send a request that puts on these labels and takes off the others."""

    roles: Roles


@attrs.frozen
class GiveUp:
    """Give up the request in flight."""


@attrs.frozen
class Rest:
    """Do nothing until a time, an answer or a change."""

    until_ms: float


class LabelPlan:
    """Change the labels of the pod to the wanted ones, a request at a time.

    `known` are the labels on the pod, or None if they are unknown after the latest request. The
    retry delays depend on the name of the pod, so that pods do not retry at the same time.
    """

    def __init__(self, pod: str = "") -> None:
        self._pod = pod
        self.known: Roles | None = None
        self.in_flight: Roles | None = None
        self.refused: Roles | None = None
        """The labels of the latest request, if the API server would refuse it again."""
        self._wanted: Roles | None = None
        self._wanted_at_ms = -math.inf
        self._sent_at_ms = 0
        self._unsure_until_ms = -math.inf
        self._is_unsure = False
        self._failures = 0
        self._not_before_ms = -math.inf

    def is_off(self, role: str) -> bool:
        """Return whether the label is off, and no request is putting it on."""
        if self.in_flight is not None and role in self.in_flight:
            return False
        return self.known is not None and role not in self.known

    def wanted_since_ms(self, wanted: Roles, now_ms: int) -> float:
        """Return the time since which these labels are wanted."""
        return self._wanted_at_ms if wanted == self._wanted else now_ms

    def step(self, wanted: Roles, now_ms: int) -> Send | GiveUp | Rest:
        """Return the next action."""
        if wanted != self._wanted:  # a change is tried at once, even after failures
            self._wanted, self._failures, self._not_before_ms = wanted, 0, -math.inf
            self._wanted_at_ms = now_ms
        if self.in_flight is not None:
            is_late = now_ms >= self._sent_at_ms + TIMEOUT_MS
            puts_on_too_much = bool(self.in_flight - wanted)
            if is_late or puts_on_too_much:
                return GiveUp()
            return Rest(self._sent_at_ms + TIMEOUT_MS)
        if now_ms < self._not_before_ms:
            return Rest(self._not_before_ms)
        if self.known != wanted:
            return Send(wanted)
        if self._is_unsure and now_ms < self._unsure_until_ms:
            return Rest(self._unsure_until_ms)
        return Send(wanted) if self._is_unsure else Rest(math.inf)

    def sent(self, roles: Roles, now_ms: int) -> None:
        """Note that a request is in flight."""
        assert self.in_flight is None, "only one request is in flight at a time"
        self.in_flight, self._sent_at_ms = roles, now_ms

    def answered(self) -> None:
        """Note that the request was executed."""
        self.known, self.in_flight = self.in_flight, None
        self._failures, self.refused = 0, None
        if self._sent_at_ms >= self._unsure_until_ms:
            self._is_unsure = False

    def failed(self, now_ms: int, *, may_take_effect: bool, is_refused: bool = False) -> None:
        """Note that the request failed, and pause before the next one.

        `may_take_effect` is True if the request may have been executed, or still may be.
        `is_refused` is True if a retry would be refused again.
        """
        self.refused = self.in_flight if is_refused else None
        self.in_flight = None
        self._failures += 1
        pause_s = backoff(self._failures, self._pod, MAX_PAUSE_S)
        self._not_before_ms = now_ms + math.ceil(pause_s * 1000)
        if may_take_effect:
            self.known, self._is_unsure = None, True
            self._unsure_until_ms = now_ms + UNSURE_MS

    def given_up(self, now_ms: int) -> bool:
        """Note that the request was given up, and return whether it was late.

        Only a late request counts as a failure.
        """
        is_late = now_ms >= self._sent_at_ms + TIMEOUT_MS
        self.failed(now_ms, may_take_effect=True)
        if not is_late:
            self._failures, self._not_before_ms = 0, -math.inf
        return is_late
