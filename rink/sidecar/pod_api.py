"""Change labels of the own pod by calls of the Kubernetes API.

Each call has its own thread and connection. The thread is a daemon that is never joined. So a name
server or an API server that hangs cannot delay the end of a sidecar. Token and CA are read for each
call, since the kubelet replaces them.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

from rink.errors import ConfigError
from rink.sidecar.pod_label import TIMEOUT_MS, Roles, labels_of

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = TIMEOUT_MS / 1000
CONNECT_TIMEOUT_S = 0.75 * TIMEOUT_S
"""This is shorter than `TIMEOUT_S`.

So a call that cannot connect fails before it is given up, and certainly had no effect.
"""
MAX_ANSWER_BYTES = 64 * 1024
MAX_SHOWN = 300
"""The maximum number of logged characters of an API server's message."""
REFUSED = frozenset({400, 403, 404, 422})
"""The statuses of refusals that a retry would not change: admission, rights, or no such pod."""
TOKEN = re.compile(rb"[!-~]+")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Value of SO_LINGER by which closing a connection drops the bytes that are not sent yet.

Otherwise the kernel tries for minutes to send them, and a late old call would undo a newer one.
"""
NOTE = "etcd-rink/may-change-more"
"""An annotation that is never set. The API server must refuse it: see `PodApi`."""


class PodApiError(Exception):
    """Report why a call failed.

    Attributes:
        may_take_effect: True if the API server may have executed the call, or still may do so.
        is_refused: True if a retry would be refused again.
    """

    def __init__(
        self, message: str, *, may_take_effect: bool = False, is_refused: bool = False
    ) -> None:
        super().__init__(message)
        self.may_take_effect = may_take_effect
        self.is_refused = is_refused


@attrs.frozen
class Pod:
    """Name the own pod, and the address of the API server."""

    host: str
    port: int
    namespace: str
    name: str
    folder: Path

    @classmethod
    def of(cls, environment: Mapping[str, str], folder: Path | None = None) -> Pod:
        """Return the pod that this process runs in.

        Raises:
            ConfigError: this process runs in no pod, or a variable or a file is missing.
        """
        folder = folder or FOLDER
        values = {
            name: environment.get(name, "")
            for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAME")
        }
        missing = [name for name, value in values.items() if not value]
        if missing:
            raise ConfigError(
                f"--label-pod needs {', '.join(missing)} in the environment: run the sidecar in a "
                "pod, as in deploy/sidecar/label"
            )
        host, port, name = values.values()
        if not port.isdigit():
            raise ConfigError(f"KUBERNETES_SERVICE_PORT is {port!r}, but must be a number")
        try:
            (folder / "token").read_bytes()
            (folder / "ca.crt").read_bytes()
            namespace = environment.get("POD_NAMESPACE", "")
            namespace = namespace or (folder / "namespace").read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"--label-pod needs the token of a service account: {error.filename}: "
                f"{error.strerror}: mount it as deploy/sidecar/label does"
            ) from error
        return cls(host, int(port), namespace, name, folder)


def read_token(folder: Path) -> str:
    """Return the token of the service account.

    Raises:
        ValueError: the file has no token. The message omits its content, which may be a part of a
            secret.
    """
    token = (folder / "token").read_bytes().strip()
    if not TOKEN.fullmatch(token):
        raise ValueError(f"{folder / 'token'} has no token")
    return token.decode()


def tls_context(folder: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the cluster's CA.

    From Python 3.13 on, a default context demands extensions that the CA of many clusters lacks,
    for example of EKS or MicroK8s. This context does not. It still checks the chain, the dates and
    the host name.
    """
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _Call:
    """Make one PATCH in a thread, which another thread may give up."""

    def __init__(self, pod: Pod, metadata: dict[str, Any], query: str) -> None:
        self._pod = pod
        self._body = json.dumps({"metadata": metadata})
        path = f"/api/v1/namespaces/{quote(pod.namespace, '')}/pods/{quote(pod.name, '')}"
        # The API server gives up after `timeout`, so it never executes a late request.
        self._target = f"{path}?timeout={TIMEOUT_S:g}s{query}"
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_given_up = False
        self.is_sent = False
        """True if the API server may have got the call. `give_up` makes this final."""

    def run(self) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        token, context = read_token(self._pod.folder), tls_context(self._pod.folder)
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/merge-patch+json",
            "Accept": "application/json",
            "Connection": "close",
        }
        connection = http.client.HTTPSConnection(
            self._pod.host, self._pod.port, timeout=CONNECT_TIMEOUT_S, context=context
        )
        with contextlib.closing(connection):
            connection.connect()
            with self._lock:
                if self._is_given_up:
                    raise TimeoutError("given up")
                self._socket, self.is_sent = connection.sock, True
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._socket.settimeout(TIMEOUT_S)
            connection.request("PATCH", self._target, self._body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_ANSWER_BYTES)

    def give_up(self) -> None:
        """End the call, so that it writes nothing more."""
        with self._lock:
            self._is_given_up = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # After SSLSocket.shutdown, the other thread would write in plain text.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@attrs.define
class PodApi:
    """Put labels on the own pod.

    **The token must allow nothing else.** The right to patch pods would allow any change of any pod
    of the namespace, so an admission policy must restrict it. Before the first label is put on, a
    dry run tries to annotate the pod. If the API server allows this, no label is put on. If the API
    server then refuses the label, too, the token may have no rights at all, and the refusal does
    not prove a policy. So the dry run is repeated before the next label.
    """

    _pod: Pod
    _labelled: Roles
    _is_restricted: bool = False

    async def label(self, roles: Roles) -> None:
        """Put the labels of these roles on, and take all others off.

        Raises:
            PodApiError: the call failed, or the token is not restricted.
        """
        if roles and not self._is_restricted:
            await self._check_restricted()
        try:
            await self._patch({"labels": labels_of(roles, self._labelled)})
        except PodApiError as error:
            self._is_restricted = self._is_restricted and not error.is_refused
            raise

    async def _check_restricted(self) -> None:
        try:
            await self._patch({"annotations": {NOTE: "true"}}, "&dryRun=All")
        except PodApiError as error:
            if not error.is_refused:
                error.may_take_effect = False  # a dry run has no effect
                raise
            self._is_restricted = True
            return
        raise PodApiError(
            "the sidecar's token may change more than labels, such as images of pods: apply the "
            "ValidatingAdmissionPolicy of deploy/sidecar/label",
            is_refused=True,
        )

    async def _patch(self, metadata: dict[str, Any], query: str = "") -> None:
        """Patch the metadata of the pod. A cancellation gives the call up."""
        call = _Call(self._pod, metadata, query)
        answer: Future[tuple[int, bytes]] = Future()
        answer.set_running_or_notify_cancel()  # so that a cancellation does not cancel this future

        def work() -> None:
            try:
                answer.set_result(call.run())
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=work, name="rink pod label", daemon=True).start()
        try:
            status, body = await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            call.give_up()
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PodApiError(_words(error), may_take_effect=call.is_sent) from error
        if 200 <= status < 300:
            return
        raise PodApiError(
            f"the API server answered {status}: {_message(body)}",
            may_take_effect=status >= 500,
            is_refused=status in REFUSED,
        )


def _message(body: bytes) -> str:
    text = body.decode(errors="replace")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["message"])
    return json.dumps(text[:MAX_SHOWN])


def _words(error: Exception) -> str:
    text = str(error)[:MAX_SHOWN] or type(error).__name__
    return json.dumps(text) if isinstance(error, http.client.HTTPException) else text
