"""Where etcd is and how to prove who is who: settings read and checked, nothing opened.

Everything that can be found wrong without a connection is found here, when the client is made,
so that a typing error is named at once and not after a timeout.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from rink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT_PORT = 2379

Pem = str | Path | bytes


@attrs.frozen
class Endpoint:
    """One etcd server's client address.

    Attributes:
        url: as people write it, for messages.
        host: name or address, without brackets.
        port: TCP port.
        tls: spoken to over TLS.
    """

    url: str
    host: str
    port: int
    tls: bool

    @property
    def target(self) -> str:
        """What gRPC calls it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@attrs.frozen
class TlsSettings:
    """PEM texts, each None where not given, and the files' paths for the standard library."""

    ca: bytes | None = None
    cert: bytes | None = attrs.field(default=None, repr=False)
    key: bytes | None = attrs.field(default=None, repr=False)
    cert_paths: tuple[str, str] | None = None

    @property
    def is_given(self) -> bool:
        """Any of the three was set."""
        return self.ca is not None or self.cert is not None

    def context(self) -> ssl.SSLContext:
        """The standard library's view of the same settings.

        The client certificate is in it only where it was given as files: the library reads no
        key from memory, and a key is not to be written to a disk for a diagnosis.

        Raises:
            ConfigError: the texts are not PEM, or key and certificate do not belong together.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"ca holds no usable PEM certificate: {error}") from error
        if self.cert_paths:
            try:
                # An empty passphrase: without one the library asks on the terminal.
                context.load_cert_chain(*self.cert_paths, password="")
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f"cert {self.cert_paths[0]} and key {self.cert_paths[1]} cannot be used "
                    f"together (two PEM files that belong together, the key unencrypted): {error}"
                ) from error
        return context


def read_endpoints(endpoints: Sequence[str], *, tls: bool) -> tuple[Endpoint, ...]:
    """The endpoints in the order given, doubles removed.

    Args:
        endpoints: `http://host:port`, `https://host:port` or `host:port`, which is https where
            certificates are given. The port is 2379 where none is named.
        tls: certificates are given.

    Raises:
        ConfigError: there are none, one cannot be read, or http and https are mixed.
    """
    if isinstance(endpoints, str):
        raise ConfigError(f"endpoints is a list of addresses, not one string: {endpoints!r}")
    read = tuple(dict.fromkeys(_read_endpoint(one, tls=tls) for one in endpoints))
    if not read:
        raise ConfigError("no endpoint is given; one looks like http://127.0.0.1:2379")
    if len({one.tls for one in read}) > 1:
        urls = ", ".join(one.url for one in read)
        raise ConfigError(f"endpoints mix http and https, which would send secrets bare: {urls}")
    if tls and not read[0].tls:
        raise ConfigError(f"certificates are given, but {read[0].url} is not https")
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
        # Not repeated in the message: it holds a password.
        raise ConfigError(f"endpoint at {parts.hostname!r} holds a user: pass user= and password=")
    if not parts.hostname or port == 0:
        raise ConfigError(f"endpoint {text!r} names no host, or port 0")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ConfigError(f"endpoint {text!r} has more than a host and a port")
    port = port or _DEFAULT_PORT
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Endpoint(
        f"{parts.scheme}://{host}:{port}", parts.hostname, port, parts.scheme == "https"
    )


def read_tls(ca: Pem | None, cert: Pem | None, key: Pem | None) -> TlsSettings:
    """The PEM texts behind three settings, each a path or the text itself as bytes.

    Raises:
        ConfigError: a file cannot be read, is not PEM, or only one of cert and key is given.
    """
    if (cert is None) != (key is None):
        given, missing = ("cert", "key") if key is None else ("key", "cert")
        raise ConfigError(f"{given} is given without {missing}: a client certificate needs both")
    files = isinstance(cert, str | Path) and isinstance(key, str | Path)
    settings = TlsSettings(
        ca=_read_pem("ca", ca),
        cert=_read_pem("cert", cert),
        key=_read_pem("key", key),
        cert_paths=(str(cert), str(key)) if files else None,
    )
    if settings.is_given:
        settings.context()
    return settings


def _read_pem(name: str, value: Pem | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        text, where = value, name
    else:
        where = f"{name} {str(value)!r}"
        try:
            text = Path(value).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in text:
        raise ConfigError(f"{where} is not PEM: it has no -----BEGIN line")
    return text


def check_user(user: str | None, password: str | None) -> None:
    """A user and a password come together or not at all.

    Raises:
        ConfigError: only one is given, or the user is empty.
    """
    if password is not None and user is None:
        raise ConfigError("password is given without user")
    if user is not None and password is None:
        raise ConfigError(
            f"user {user!r} is given without password "
            "(a user named by a client certificate needs neither)"
        )
    if user == "":
        raise ConfigError("user is empty")


def check_timeout(timeout: float) -> None:
    """A timeout is a positive number of seconds.

    Raises:
        ConfigError: it is not.
    """
    if not 0 < timeout < float("inf"):
        raise ConfigError(f"timeout is {timeout!r}: it is a positive number of seconds")
