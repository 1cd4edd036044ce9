"""Answer as a test says, and collect what a client delivers.

The client and gRPC are real; nothing is started but a thread pool in this process.
"""

from __future__ import annotations

import collections
import threading
import time
from concurrent import futures

import grpc

from rink.etcd.api import Put, WatchBroken, WatchOpened
from rink.etcd.proto import rinketcd_pb2 as pb

PATIENCE_S = 15.0


def put(client, key, value=b"", lease=0, timeout=None):
    """Write one key; the revision that made."""
    return client.txn((), (Put(key, value, lease),), timeout=timeout).header.revision


class Seen:
    """Collects what a watch or a keepalive stream delivers."""

    def __init__(self):
        self.items = []
        self.at = []
        self.openings = 0
        self._changed = threading.Condition()

    def deliver(self, item):
        with self._changed:
            if isinstance(item, WatchOpened):
                self.openings += 1
            else:
                self.items.append(item)
                self.at.append(time.monotonic())
            self._changed.notify_all()

    def wait(self, what, timeout=PATIENCE_S):
        """Wait until `what(self)` is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), timeout), self.items[-5:]

    def wait_events(self, count, timeout=PATIENCE_S):
        self.wait(lambda seen: len(seen.events) >= count, timeout)
        return self.events

    @property
    def events(self):
        return [e for item in self.items if not isinstance(item, WatchBroken) for e in item.events]

    @property
    def revisions(self):
        return [event.kv.mod_revision for event in self.events]

    @property
    def values(self):
        return [event.kv.value for event in self.events]

    @property
    def broken(self):
        return next((item.error for item in self.items if isinstance(item, WatchBroken)), None)

    def wait_broken(self, timeout=PATIENCE_S):
        self.wait(lambda seen: seen.broken is not None, timeout)
        return self.broken


def header(revision=1, cluster_id=1, raft_term=2):
    return pb.ResponseHeader(
        cluster_id=cluster_id, member_id=1, revision=revision, raft_term=raft_term
    )


class ScriptedEtcd:
    """A gRPC server on loopback that answers as a test says.

    `answer[name]` is a function from a request to an answer (or to several of them on a stream), to
    a status code, or to one and what etcd says with it;
    `seen[name]` are the requests that came, `metadata[name]` what was sent along with each call.
    """

    PATHS = {
        "range": ("KV/Range", pb.RangeRequest),
        "txn": ("KV/Txn", pb.TxnRequest),
        "grant": ("Lease/LeaseGrant", pb.LeaseGrantRequest),
        "time_to_live": ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest),
        "members": ("Cluster/MemberList", pb.MemberListRequest),
        "watch": ("Watch/Watch", pb.WatchRequest),
        "keepalive": ("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest),
    }
    STREAMS = {"watch", "keepalive"}

    def __init__(self, **answer):
        self.answer = {
            "range": lambda _: pb.RangeResponse(header=header()),
            "members": lambda _: grpc.StatusCode.UNIMPLEMENTED,
            **answer,
        }
        self.seen = {name: [] for name in self.PATHS}
        self.metadata = collections.defaultdict(list)
        self._changed = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(8, "scripted"))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()

    def wait(self, what):
        """Wait until `what(self)` is true; check it after each request."""
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), PATIENCE_S), self.seen

    def _note(self, noted, what):
        with self._changed:
            noted.append(what)
            self._changed.notify_all()

    def _handlers(self):
        by_path = {
            f"/etcdserverpb.{path}": self._handler(name, request)
            for name, (path, request) in self.PATHS.items()
        }

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details):
                return by_path.get(details.method)

        return Handlers()

    def _handler(self, name, request):
        def unary(message, context):
            self._note(self.seen[name], message)
            self._note(self.metadata[name], dict(context.invocation_metadata()))
            result = self.answer[name](message)
            if isinstance(result, grpc.StatusCode):
                result = (result, "scripted")
            if isinstance(result, tuple):
                context.abort(*result)
            return result

        def stream(messages, context):
            self._note(self.metadata[name], dict(context.invocation_metadata()))
            for message in messages:
                self._note(self.seen[name], message)
                yield from self.answer[name](message)

        make = (
            grpc.stream_stream_rpc_method_handler
            if name in self.STREAMS
            else grpc.unary_unary_rpc_method_handler
        )
        return make(
            stream if name in self.STREAMS else unary,
            request_deserializer=request.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
