"""Check the meaning of errors of gRPC and etcd, by texts of real runs."""

import grpc
import pytest

from rink.errors import EtcdAuth, EtcdCompacted, EtcdError, EtcdTooLarge
from rink.etcd.error_map import FaultKind, is_about_tls, read_fault, refusal

Code = grpc.StatusCode


class Said(grpc.RpcError):
    def __init__(self, code, details):
        self._code, self._details = code, details

    def code(self):
        return self._code

    def details(self):
        return self._details


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (Code.UNAVAILABLE, "etcdserver: no leader", FaultKind.SILENT),
        (Code.UNAVAILABLE, "etcdserver: request timed out", FaultKind.SILENT),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", FaultKind.SILENT),
        (Code.UNKNOWN, "Stream removed (Socket closed)", FaultKind.SILENT),
        (Code.CANCELLED, "Channel closed!", FaultKind.SILENT),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", FaultKind.STALE_TOKEN),
        (Code.INVALID_ARGUMENT, "etcdserver: user name is empty", FaultKind.STALE_TOKEN),
        (Code.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", FaultKind.STALE_TOKEN),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", FaultKind.REFUSED),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", FaultKind.REFUSED),
        (Code.INVALID_ARGUMENT, "etcdserver: request is too large", FaultKind.REFUSED),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", FaultKind.REFUSED),
        (Code.UNIMPLEMENTED, "", FaultKind.REFUSED),
    ],
)
def test_error_is_silence_a_stale_token_or_a_no(code, words, kind):
    assert read_fault(Said(code, words), has_user=True).kind is kind


def test_without_a_user_no_token_is_stale():
    error = Said(Code.UNAUTHENTICATED, "etcdserver: invalid auth token")
    assert read_fault(error, has_user=False).kind is FaultKind.REFUSED


@pytest.mark.parametrize(
    ("words", "never_sent"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:…", True),
        ("DNS resolution failed for nowhere:2379", True),
        ("Socket closed", False),
        ("Stream removed (Socket closed)", False),
        ("Connection reset by peer", False),
        ("recvmsg:Connection refused", False),
        ("etcdserver: no leader", False),
        ("", False),
    ],
)
def test_only_what_gave_no_call_to_a_connection_is_known_as_never_sent(words, never_sent):
    assert read_fault(Said(Code.UNAVAILABLE, words), has_user=False).never_sent is never_sent


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        ("failed to connect to all addresses; last error: …: Connection refused (111)", True),
        ("failed to connect to all addresses; last error: …: Timeout occurred", False),
        ("recvmsg:Connection refused", False),
    ],
)
def test_read_fault_marks_a_connection_that_was_refused(words, is_refused):
    assert read_fault(Said(Code.UNAVAILABLE, words), has_user=False).is_refused is is_refused


UNREACHED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:2379: "
HANDSHAKE = (
    "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:"
)
REFUSED = "Failed to connect to remote host: Connection refused"
UNTRUSTED = "OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (UNREACHED + REFUSED, "connection refused by 10.0.0.1:2379"),
        (UNREACHED.replace("ipv4:10.0.0.1", "ipv6:%5B::1%5D") + REFUSED, "connection refused"),
        (
            UNREACHED + HANDSHAKE + UNTRUSTED,
            (
                "the server's certificate was refused: unable to get local issuer certificate "
                "(check ca="
            ),
        ),
        (
            UNREACHED + HANDSHAKE + "OPENSSL_internal:SSLV3_ALERT_BAD_CERTIFICATE: OK",
            "the server refused our client certificate: bad certificate (check cert= and key=)",
        ),
        (
            UNREACHED + HANDSHAKE + "OPENSSL_internal:TLSV1_ALERT_UNKNOWN_CA: OK",
            "the server refused our client certificate: unknown ca (check cert= and key=)",
        ),
        (
            UNREACHED + HANDSHAKE + "OPENSSL_internal:TLSV1_ALERT_CERTIFICATE_REQUIRED: OK",
            (
                "the server refused our client certificate: certificate required "
                "(check cert= and key=)"
            ),
        ),
        (
            UNREACHED + HANDSHAKE + "OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid certificate",
            "the server does not speak TLS (use http://)",
        ),
        ("etcdserver: no leader", "etcd has no leader: are most of its nodes up?"),
        ("etcdserver: request timed out", "etcd could not answer in time: are most"),
        ("context deadline exceeded", "etcd could not answer in time: are most"),
        ("Stream removed (Socket closed)", "Stream removed (Socket closed)"),
        ("", "UNAVAILABLE"),
    ],
)
def test_words_of_a_fault_say_what_to_look_at(details, words):
    fault = read_fault(Said(Code.UNAVAILABLE, details), has_user=False)
    assert fault.words.startswith(words)
    assert is_about_tls(fault.words) is (HANDSHAKE in details)


def test_failed_handshake_is_known_by_its_words():
    assert is_about_tls("failed to connect to all addresses; last error: Ssl handshake failed")
    assert not is_about_tls("failed to connect to all addresses; last error: Connection refused")


def test_tls_that_breaks_after_the_handshake_is_known_by_its_words():
    """With TLS 1.3, a server refuses a client certificate after the handshake."""
    assert is_about_tls("last error: UNAVAILABLE: Unwrap failed (TSI_DATA_CORRUPTED)")


@pytest.mark.parametrize(
    ("code", "words", "expected", "says"),
    [
        (
            Code.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            EtcdCompacted,
            "",
        ),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", EtcdAuth, "prefix"),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", EtcdAuth, ""),
        (
            Code.INVALID_ARGUMENT,
            "etcdserver: user name is empty",
            EtcdAuth,
            "wants user= and password=",
        ),
        (
            Code.INVALID_ARGUMENT,
            "etcdserver: authentication failed, invalid user ID or password",
            EtcdAuth,
            "check user and password",
        ),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", EtcdError, ""),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", EtcdError, "quota"),
        (
            Code.INVALID_ARGUMENT,
            "etcdserver: too many operations in txn request",
            EtcdTooLarge,
            "--max-txn-ops",
        ),
        (
            Code.INVALID_ARGUMENT,
            "etcdserver: request is too large",
            EtcdTooLarge,
            "--max-request-bytes",
        ),
        (
            Code.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (2100000 vs. 2097152)",
            EtcdTooLarge,
            "",
        ),
    ],
)
def test_refusal_says_what_where_and_what_to_do(code, words, expected, says):
    error = refusal(code, words, "txn on b'k'", "http://etcd:1")
    assert type(error) is expected
    assert all(text in str(error) for text in ("txn on b'k'", "http://etcd:1", words, says))
