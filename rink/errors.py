"""Define every exception that Rink raises on purpose.

`rink.core.schemes` adds two kinds of ConfigError. "Not mine" is None and a loss is a signal
(`role.lost`). Neither is an exception.

An error's text is a whole sentence for people. Attributes have what code may need. An attribute
that is unknown at the raise is "", 0 or an empty tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ClosedError", "ConfigError", "EtcdAuth", "EtcdClusterChanged", "EtcdCompacted", "EtcdError",
    "EtcdTls", "EtcdTooLarge", "EtcdUnavailable", "ForkedProcessError", "JoinError",
    "MemberNameTaken", "RinkError", "RoleError", "RoleLost", "RoleTimeout", "StaleToken",
    "StateError", "UsageError", "WrongThreadError",
]  # fmt: skip


class RinkError(Exception):
    """Anything that Rink raises on purpose."""


class ConfigError(RinkError, ValueError):
    """A setting or a name cannot be used."""


class UsageError(RinkError):
    """A call cannot be made here, and changed nothing."""


class ForkedProcessError(UsageError):
    """A session of the parent process was used in a forked child."""


class WrongThreadError(UsageError):
    """A call would wait for itself.

    It was made in a callback, or in a signal handler that interrupted another call.
    """


class ClosedError(UsageError):
    """The session or the Rink has been closed."""


class JoinError(RinkError):
    """The group could not be joined.

    Attributes:
        member: the member name of the attempt.
    """

    def __init__(self, *args: object, member: str = "") -> None:
        super().__init__(*args)
        self.member = member


class MemberNameTaken(JoinError):  # noqa: N818 - the name is public and fixed
    """Another live record in the group has this member's name."""


class RoleError(RinkError):
    """An error about one role.

    Attributes:
        role: the role's name.
        group: the group's name.
        member: the member that requested the role, or had it.
    """

    def __init__(self, *args: object, role: str = "", group: str = "", member: str = "") -> None:
        super().__init__(*args)
        self.role = role
        self.group = group
        self.member = member


class RoleTimeout(RoleError, TimeoutError):  # noqa: N818 - the name is public and fixed
    """Report that no role or rank was given within the caller's timeout.

    For a rank, `role` is "".
    """


class RoleLost(RoleError):  # noqa: N818 - the name is public and fixed
    """The role is no longer held.

    Attributes:
        token: the role's fencing token.
    """

    def __init__(self, *args: object, token: int = 0, **about: str) -> None:
        super().__init__(*args, **about)
        self.token = token


class StaleToken(RoleError):  # noqa: N818 - the name is public and fixed
    """A write under a stale fencing token was refused, and changed nothing.

    Attributes:
        token: the fencing token of the write.
        newer: the token that counts now. It is 0 if it is unknown, or if the session was lost and
            nobody has taken over yet.
    """

    def __init__(self, *args: object, token: int = 0, newer: int = 0, **about: str) -> None:
        super().__init__(*args, **about)
        self.token = token
        self.newer = newer


class StateError(RinkError):
    """Stored data is missing, unreadable, or not what was expected.

    Attributes:
        key: the key, or the common prefix of several keys.
    """

    def __init__(self, *args: object, key: str = "") -> None:
        super().__init__(*args)
        self.key = key


class EtcdError(RinkError):
    """A call to etcd failed; the message names the endpoints.

    Attributes:
        endpoints: the endpoints that refused, or did not answer.
    """

    def __init__(self, *args: object, endpoints: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.endpoints = tuple(endpoints)


class EtcdUnavailable(EtcdError):  # noqa: N818 - the name is public and fixed
    """No endpoint answered in time. A transaction may still have been applied."""


class EtcdAuth(EtcdError):  # noqa: N818 - the name is public and fixed
    """User, password, token or permission was refused."""


class EtcdTls(EtcdError):  # noqa: N818 - the name is public and fixed
    """The certificate or the TLS handshake was refused."""


class EtcdCompacted(EtcdError):  # noqa: N818 - the name is public and fixed
    """The revision asked for has been compacted away."""


class EtcdTooLarge(EtcdError):  # noqa: N818 - named as the other public errors are
    """A request has more operations or bytes than etcd allows.

    Nothing was done.
    """


class EtcdClusterChanged(EtcdError):  # noqa: N818 - the name is public and fixed
    """Another cluster answered, or etcd's history went back after a restore."""
