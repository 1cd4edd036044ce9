"""Find out why TLS fails, for error messages.

gRPC reports a refused certificate as UNAVAILABLE. If a server requires a client certificate, gRPC
reports only that the connection broke. So if no endpoint answers, the standard library makes a TLS
handshake to find the reason.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

from rink.errors import ConfigError, EtcdTls
from rink.etcd.setting_names import setting

if TYPE_CHECKING:
    from rink.etcd.endpoints import Endpoint
    from rink.etcd.tls import TlsSettings

_PROBE_TIMEOUT_S = 0.5
_HUNG_UP = "the server hung up: if it does not speak TLS, use http://"


def find_tls_trouble(endpoint: Endpoint, tls: TlsSettings, deadline: float) -> None:
    """Make a TLS handshake with an endpoint, and raise EtcdTls if TLS fails.

    This returns by the monotonic deadline, and takes half a second at most.
    """
    seconds = min(_PROBE_TIMEOUT_S, deadline - time.monotonic())
    if seconds <= 0:
        return
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=seconds) as sock:
            if endpoint.tls:
                _shake_hands(sock, endpoint, tls)
            else:
                _expect_no_tls(sock, endpoint)
    except OSError:
        # The endpoint is unreachable or silent, which the caller reports itself.
        return


def _shake_hands(sock: socket.socket, endpoint: Endpoint, tls: TlsSettings) -> None:
    try:
        context = tls.context()
    except ConfigError:
        return  # a file is being written; a warning was logged
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(sock, server_hostname=endpoint.host) as wrapped:
            if tls.pair.cert is not None and tls.pair.paths is None:
                return
            # With TLS 1.3, a server refuses a client certificate only after the handshake. A server
            # that accepts it sends nothing, and this read times out.
            wrapped.recv(1)
    except ssl.SSLCertVerificationError as error:
        raise EtcdTls(
            f"the certificate of {endpoint.url} was refused: {error.verify_message} "
            f"(check {setting('ca=')}, and that the certificate names this host)",
            endpoints=[endpoint.url],
        ) from error
    except ConnectionError as error:
        raise _failed(endpoint, _HUNG_UP) from error
    except ssl.SSLError as error:
        raise _failed(endpoint, advice(error.reason or str(error))) from error


def _failed(endpoint: Endpoint, why: str) -> EtcdTls:
    return EtcdTls(f"TLS with {endpoint.url} failed: {why}", endpoints=[endpoint.url])


def advice(reason: str) -> str:
    """Return the meaning of OpenSSL's reason, and what to do."""
    reason = reason.upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return "the server does not speak TLS: use http://"
    if "EOF" in reason:
        return _HUNG_UP
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason:
        both = f"{setting('cert=')} and {setting('key=')}"
        return f"the server wants a client certificate that it trusts: pass {both}"
    if "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"the server does not trust our client certificate ({reason})"
    return reason


def _expect_no_tls(sock: socket.socket, endpoint: Endpoint) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent over this connection. It only finds out whether the server speaks TLS.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(sock, server_hostname=endpoint.host):
            pass
    except ssl.SSLError as error:
        # Only a TLS server sends an alert. Otherwise it is a server of plain http.
        if "ALERT" not in (error.reason or "").upper():
            return
    raise speaks_tls(endpoint)


def speaks_tls(endpoint: Endpoint) -> EtcdTls:
    """Return the error for an endpoint that is given as http but speaks TLS."""
    text = f"{endpoint.url} speaks TLS: use https://, with {setting('ca=')}"
    return EtcdTls(text, endpoints=[endpoint.url])
