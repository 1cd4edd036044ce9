"""Define every exception that Rink raises on purpose.

`rink.core.schemes` adds two kinds of ConfigError. "Not mine" is None and a loss is a signal
(`role.lost`). Neither is an exception.

An error's text is a whole sentence for people. Values that code may need are attributes. An unknown
value is "", 0 or an empty tuple.
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
    """Group all errors that Rink raises on purpose."""


class ConfigError(RinkError, ValueError):
    """Report that a setting or a name cannot be used."""


class UsageError(RinkError):
    """Report that a call cannot be made here, and changed nothing."""


class ForkedProcessError(UsageError):
    """Report the use of a parent's session in a forked child."""


class WrongThreadError(UsageError):
    """Report that a call would wait for itself.

    The call was made in a callback, or in a signal handler that interrupted another call.
    """


class ClosedError(UsageError):
    """Report that the session or the Rink has been closed."""


class JoinError(RinkError):
    """Report that the group could not be joined.

    Attributes:
        member: the member name of the attempt.
    """

    def __init__(self, *args: object, member: str = "") -> None:
        super().__init__(*args)
        self.member = member


class MemberNameTaken(JoinError):  # noqa: N818 - the name is public and fixed
    """Report that another live record in the group has the member's name."""


class RoleError(RinkError):
    """Report an error about one role.

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
    """Report that the role is no longer held.

    Attributes:
        token: the role's fencing token.
    """

    def __init__(self, *args: object, token: int = 0, **about: str) -> None:
        super().__init__(*args, **about)
        self.token = token


class StaleToken(RoleError):  # noqa: N818 - the name is public and fixed
    """Report the refusal of a stale fencing token; nothing was written.

    Attributes:
        token: the fencing token of the write.
        newer: the token that counts now. It is 0 if that token is unknown, or if the session was
            lost and nobody has taken over yet.
    """

    def __init__(self, *args: object, token: int = 0, newer: int = 0, **about: str) -> None:
        super().__init__(*args, **about)
        self.token = token
        self.newer = newer


class StateError(RinkError):
    """Report that stored data is missing, unreadable, or unexpected.

    Attributes:
        key: the key, or the common prefix of several keys.
    """

    def __init__(self, *args: object, key: str = "") -> None:
        super().__init__(*args)
        self.key = key


class EtcdError(RinkError):
    """Report that a call to etcd failed; the message names the endpoints.

    Attributes:
        endpoints: the endpoints that refused, or did not answer.
    """

    def __init__(self, *args: object, endpoints: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.endpoints = tuple(endpoints)


class EtcdUnavailable(EtcdError):  # noqa: N818 - the name is public and fixed
    """Report that no endpoint answered; a transaction may be applied anyway."""


class EtcdAuth(EtcdError):  # noqa: N818 - the name is public and fixed
    """Report that a user, password, token or permission was refused."""


class EtcdTls(EtcdError):  # noqa: N818 - the name is public and fixed
    """Report that the certificate or the TLS handshake was refused."""


class EtcdCompacted(EtcdError):  # noqa: N818 - the name is public and fixed
    """Report that the requested revision has been compacted away."""


class EtcdTooLarge(EtcdError):  # noqa: N818 - named as the other public errors are
    """Report that a request has more operations or bytes than etcd allows.

    Nothing was done.
    """


class EtcdClusterChanged(EtcdError):  # noqa: N818 - the name is public and fixed
    """Report another cluster, or a restore that set etcd's history back."""
