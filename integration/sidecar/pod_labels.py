"""Stand in for an API server, and run sidecars that label its pod."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pems import Files
from sidecar_support import FAST, Sidecar

SCRIPT = Path(__file__).with_name("labelled_sidecar.py")
PATH = "/api/v1/namespaces/shop/pods/web-1?timeout="
LABEL = "etcd-rink/leader"
OPTIONS = (*FAST, "--grace", "1")
"""Options for programs that do not answer a loss, so that the sidecar waits for their end."""


class LabelledSidecar(Sidecar):
    """Run a sidecar in a pod.

    Args:
        environment: the environment of the pod: see `in_pod`.
        mounted: the folder of the service account.
        more: the other arguments of a `Sidecar`.
    """

    def __init__(self, environment, mounted, *more, options=OPTIONS, roles=("leader",), **named):
        labels = [word for role in roles for word in ("--label-pod", role)]
        super().__init__(*more, options=(*options, *labels), **named)
        command = [sys.executable, str(SCRIPT), str(mounted), "sidecar"]
        self._line = [*command, *self._line[self._line.index("sidecar") + 1 :]]
        self._env |= environment

    def hold(self, role="leader", **more):
        """Hold a role by a call that waits, and return its grant."""
        body = {"roles": [role], "wait": 30, "alive": 60, **more}
        status, said = self.call("POST", "/v1/hold", body)
        assert status == 200, said
        (grant,) = said["held"]
        return grant

    def release(self, grant):
        """Give a role back."""
        body = {"grant": grant["grant"], "role": grant["role"]}
        assert self.call("POST", "/v1/release", body)[0] == 204


def in_pod(host, port, pod="web-1", namespace="shop"):
    """Return the environment of a pod."""
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "POD_NAME": pod,
        "POD_NAMESPACE": namespace,
        "https_proxy": "http://127.0.0.1:1",  # which nobody may ask
        "RINK_TERMINATION_GRACE": "60",
    }


class Server(ThreadingHTTPServer):
    """Serve on one address family.

    A client that goes away is no error.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address, handler):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, *_):
        pass


class Kube:
    """Stand in for an API server that knows one pod, behind TLS.

    Attributes:
        labels: the labels of the pod, with one that a former sidecar left behind.
        executed: how many requests were executed.
        token: the token that a request needs.
        status: the status of each answer, if it is not 200.
        is_hung: whether requests are read and not answered.
        is_open: whether it lets tokens annotate the pod.
        limit_s: the time limit that a sidecar gives a call, in seconds.
        asked: the requests, each with its time in seconds and its labels.
    """

    def __init__(self, folder, host="127.0.0.1"):
        self.labels = {"app": "web", LABEL: "held"}
        self.executed = 0
        self.token = "token-1"
        self.status = 200
        self.is_hung = False
        self.is_open = False
        self.limit_s = 2.0
        self.asked = []
        self.mounted = folder / "account"
        self.mounted.mkdir()
        self.files = Files(folder / "pems", host)
        self.mount()
        kube = self

        class Handler(BaseHTTPRequestHandler):
            def do_PATCH(self):
                kube.answer(self)

            def log_message(self, *_):
                pass

        self._server = Server((host, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.files.cert, self.files.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.host, self.port = host, self._server.server_address[1]
        self._ended = threading.Event()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def mount(self):
        """Write what the kubelet mounts, as it does: by renaming."""
        for name, content in (
            ("token", self.token.encode()),
            ("ca.crt", self.files.ca.read_bytes()),
        ):
            (self.mounted / f".{name}").write_bytes(content)
            (self.mounted / f".{name}").rename(self.mounted / name)

    def close(self):
        """End it, and all its calls."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request):
        """Answer a call as an API server does."""
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        metadata = body["metadata"]
        self.asked.append((time.monotonic(), metadata.get("labels")))
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        while self.is_hung and not self._ended.wait(0.02):
            pass
        status = self.status
        if request.headers["Authorization"] != f"Bearer {self.token}":
            status = 401
        elif request.path.removesuffix("&dryRun=All") != f"{PATH}{self.limit_s:g}s":
            status = 404
        elif "annotations" in metadata and not self.is_open:
            status = 403
        if status == 200 and "dryRun" not in request.path:
            for name, value in metadata["labels"].items():
                self.labels.pop(name, None)
                if value is not None:
                    self.labels[name] = value
            self.executed += 1
        said = json.dumps({"kind": "Status", "message": f"pods are 日本 {status}"}).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(said)))
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(said)
