"""Read and check the endpoints and other settings of a client.

This finds each mistake that needs no connection. So a typing error raises when the client is made,
and not after a timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from rink.errors import ConfigError
from rink.etcd.setting_names import setting

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT_PORT = 2379


@attrs.frozen
class Endpoint:
    """Hold one etcd server's client address.

    Attributes:
        url: the address as people write it, for messages.
        host: name or address, without brackets.
        port: TCP port.
        tls: True to connect over TLS.
    """

    url: str
    host: str
    port: int
    tls: bool

    @property
    def target(self) -> str:
        """Return the endpoint's address in gRPC's form."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def read_endpoints(endpoints: Sequence[str], *, tls: bool) -> tuple[Endpoint, ...]:
    """Return the endpoints in the order given, without duplicates.

    Args:
        endpoints: `http://host:port`, `https://host:port` or `host:port`, which is https if
            certificates are given. The default port is 2379.
        tls: True if certificates are given.

    Raises:
        ConfigError: there is no endpoint, one cannot be read, or http and https are mixed.
    """
    if isinstance(endpoints, str):
        raise ConfigError(
            f"{setting('endpoints')} must be a list of addresses, not the string {endpoints!r}"
        )
    read = tuple(dict.fromkeys(_read_endpoint(text, tls=tls) for text in endpoints))
    if not read:
        raise ConfigError("no endpoint is given; one looks like http://127.0.0.1:2379")
    if len({endpoint.tls for endpoint in read}) > 1:
        urls = ", ".join(endpoint.url for endpoint in read)
        text = "mix http and https, which would send secrets unencrypted"
        raise ConfigError(f"{setting('endpoints')} {text}: {urls}")
    if tls and not read[0].tls:
        files = f"{setting('ca=')} or {setting('cert=')}"
        raise ConfigError(f"{files} is given, but {read[0].url} is not https")
    return read


def _read_endpoint(text: object, *, tls: bool) -> Endpoint:
    if not isinstance(text, str):
        raise ConfigError(f"endpoint {text!r} is not a string")
    scheme = "https" if tls else "http"
    url = text.strip() if "://" in text else f"{scheme}://{text.strip()}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"endpoint {text!r} cannot be read: {error}") from error
    if parts.scheme not in {"http", "https"}:
        raise ConfigError(f"endpoint {text!r} has the scheme {parts.scheme!r}; use http or https")
    if parts.username is not None or parts.password is not None:
        # The message leaves out the endpoint's text, which has a password.
        both = f"{setting('user=')} and {setting('password=')}"
        raise ConfigError(f"endpoint at {parts.hostname!r} holds a user: pass {both}")
    if not parts.hostname or port == 0:
        raise ConfigError(f"endpoint {text!r} names no host, or port 0")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigError(f"endpoint {text!r} has more than a host and a port")
    port = port or _DEFAULT_PORT
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Endpoint(
        f"{parts.scheme}://{host}:{port}", parts.hostname, port, parts.scheme == "https"
    )


def check_user(user: str | None, password: str | None) -> None:
    """Check that a user and a password come together or not at all."""
    its_user, its_password = setting("user"), setting("password")
    if password is not None and user is None:
        raise ConfigError(f"{its_password} is given without {its_user}")
    if user is not None and password is None:
        raise ConfigError(
            f"{its_user} {user!r} is given without {its_password} "
            "(a user named by a client certificate needs neither)"
        )
    if user == "":
        raise ConfigError(f"{its_user} is empty")


def check_timeout(timeout: float) -> None:
    """Check that a timeout is a positive number of seconds."""
    if not 0 < timeout < float("inf"):
        raise ConfigError(
            f"{setting('timeout')} must be a positive number of seconds, not {timeout!r}"
        )
