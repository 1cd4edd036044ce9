"""Read the PEM texts of a client, from bytes or from files.

Files are read again for each connection. Certificates are rotated by writing new files. Later
connections must use them, because the old certificate may have expired by then.
"""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from rink.errors import ConfigError
from rink.etcd.setting_names import setting

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

Pem = str | Path | bytes

T = TypeVar("T")


@attrs.frozen
class KeyPair:
    """Hold a client certificate and its key, both None if not given.

    Attributes:
        paths: the two files, for the standard library, which cannot read a key from memory.
    """

    cert: bytes | None = attrs.field(default=None, repr=False)
    key: bytes | None = attrs.field(default=None, repr=False)
    paths: tuple[str, str] | None = None

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the pair into a context, if it was given as files.

        Raises:
            ConfigError: the files are not PEM, or do not belong together.
        """
        if not self.paths:
            return
        try:
            # The passphrase is empty, since without one the library asks on the terminal.
            context.load_cert_chain(*self.paths, password="")
        except (ssl.SSLError, ValueError, OSError) as error:
            raise ConfigError(
                f"{_where('cert', self.paths[0])} and {_where('key', self.paths[1])} cannot be "
                "used together "
                f"(give PEM files that belong together, the key unencrypted): {error}"
            ) from error


@attrs.frozen
class TlsSettings:
    """Hold the texts of one connection, each None if not given."""

    ca: bytes | None = None
    pair: KeyPair = attrs.field(factory=KeyPair)

    def context(self) -> ssl.SSLContext:
        """Return a TLS context of the standard library with these settings.

        It has the client certificate only if that was given as files, since a key must not be
        written to disk for a diagnosis.

        Raises:
            ConfigError: a file cannot be used now.
        """
        context = _trusting(self.ca)
        self.pair.load_into(context)
        return context


class Latest(Generic[T]):
    """Read files repeatedly, and keep the last usable result. Thread-safe.

    `read` raises ConfigError if they cannot be used. The constructor raises it, and `get` logs it.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._value = read()
        self._trouble = ""

    def get(self) -> T:
        """Read the files. If that fails, return the last usable result."""
        with self._lock:
            try:
                self._value, self._trouble = self._read(), ""
            except ConfigError as error:
                if str(error) != self._trouble:
                    _log.warning("%s; the last usable PEM texts are used", error)
                self._trouble = str(error)
            return self._value


class TlsSource:
    """Give the PEM texts for each connection. Thread-safe.

    Raises:
        ConfigError: a file cannot be read, is not PEM, or only one of cert and key is given.
    """

    def __init__(self, ca: Pem | None, cert: Pem | None, key: Pem | None) -> None:
        if (cert is None) != (key is None):
            part, missing = ("cert", "key") if key is None else ("key", "cert")
            raise ConfigError(
                f"{setting(part)} is given without {setting(missing)}: "
                "a client certificate needs both"
            )
        self.is_given = ca is not None or cert is not None
        self._ca = Latest(lambda: _read_ca(ca))
        self._pair = Latest(lambda: _read_pair(cert, key))

    def read(self) -> TlsSettings:
        """Return the texts for a connection that begins now."""
        return TlsSettings(self._ca.get(), self._pair.get())


def _read_ca(ca: Pem | None) -> bytes | None:
    text = _read_pem("ca", ca)
    if text is None:
        return None
    try:
        _trusting(text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{_where('ca', ca)} holds no usable certificate: {error}") from error
    return text


def _read_pair(cert: Pem | None, key: Pem | None) -> KeyPair:
    are_files = isinstance(cert, str | Path) and isinstance(key, str | Path)
    pair = KeyPair(
        _read_pem("cert", cert),
        _read_pem("key", key),
        (str(cert), str(key)) if are_files else None,
    )
    pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    # load_into() has read the files again, so check that they were not changed in between.
    if pair.cert != _read_pem("cert", cert) or pair.key != _read_pem("key", key):
        raise ConfigError(f"{_where('cert', cert)} and {_where('key', key)} are being written")
    return pair


def _trusting(ca: bytes | None) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.decode() if ca else None)


def _where(name: str, value: Pem | None) -> str:
    return setting(name) if isinstance(value, bytes) else f"{setting(name)} {str(value)!r}"


def _read_pem(name: str, value: Pem | None) -> bytes | None:
    if value is None:
        return None
    where = _where(name, value)
    if isinstance(value, bytes):
        text = value
    else:
        try:
            text = Path(value).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in text:
        raise ConfigError(f"{where} is not PEM: it has no -----BEGIN line")
    if text.count(b"-----BEGIN ") != text.count(b"-----END "):
        raise ConfigError(f"{where} is cut short: a -----BEGIN line has no -----END line")
    return text
