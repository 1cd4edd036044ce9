"""Use the channels of an application's own `etcd3` client (python3-etcd3).

The application has configured endpoints, certificates and login there already. Its channels are
never closed here. Its token is read for each request, and only the application can renew it.
"""

from __future__ import annotations

import functools
from typing import Any

from rink.errors import ConfigError
from rink.etcd.auth_token import GivenTokens
from rink.etcd.connections import BorrowedConnection


def borrow(client: Any) -> tuple[list[BorrowedConnection], GivenTokens]:
    """Return the connections and the token of an etcd3 client.

    Raises:
        ConfigError: `client` is not an etcd3 client.
    """
    endpoints = getattr(client, "endpoints", None)
    if isinstance(endpoints, dict) and endpoints:
        connections = [
            BorrowedConnection(str(name), functools.partial(getattr, endpoint, "channel"))
            for name, endpoint in endpoints.items()
        ]
    elif hasattr(client, "channel"):
        connections = [BorrowedConnection("etcd3 client", lambda: client.channel)]
    else:
        raise ConfigError(
            f"{type(client).__name__} is no etcd3 client: it has neither endpoints nor a channel"
        )

    def token() -> str | None:
        # etcd3 keeps ("token", …) as the metadata of its calls, and None without a login.
        value = dict(getattr(client, "metadata", None) or ()).get("token")
        return None if value is None else str(value)

    return connections, GivenTokens(token)
