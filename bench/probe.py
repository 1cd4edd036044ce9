"""Measure the limits: etcd and gRPC without Rink, in a process.

Only the trimmed messages of the library are used, over a channel with gRPC's defaults: no client,
no retries, no guard. One process puts, another watches, as the hand-over too has two.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from child import now, serve

from rink.etcd import channels
from rink.etcd import methods as m
from rink.etcd.proto import rinketcd_pb2 as pb

given = json.loads(sys.argv[1])
_OPTIONS = channels.OPTIONS if given.get("options") else ()


def connect() -> grpc.Channel:
    own = ("grpc.use_local_subchannel_pool", 1)  # a connection of its own, as a member has
    target = given["endpoint"].removeprefix("http://")
    return grpc.insecure_channel(target, options=(*_OPTIONS, own))


def unary(method: Any) -> Any:
    return channel.unary_unary(
        method.path, request_serializer=method.encode, response_deserializer=method.decode
    )


def stream(method: Any, requests: Iterator[Any], over: grpc.Channel | None = None) -> Any:
    return (over or channel).stream_stream(
        method.path, request_serializer=method.encode, response_deserializer=method.decode
    )(requests)


def putter(over: grpc.Channel) -> Any:
    return over.unary_unary(
        "/etcdserverpb.KV/Put",
        request_serializer=pb.PutRequest.SerializeToString,
        response_deserializer=pb.PutResponse.FromString,
    )


channel = connect()
PUT = putter(channel)
events: list[tuple[float, str, str, int, int]] = []  # when, key, kind, bytes, revision


def watching(prefix: str, over: grpc.Channel) -> Iterator[Any]:
    """Yield the answers of a watch on a prefix.

    The first one says that etcd has begun.
    """
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    key = prefix.encode()
    end = key[:-1] + bytes([key[-1] + 1])
    create = pb.WatchCreateRequest(key=key, range_end=end)
    requests.put(pb.WatchRequest(create_request=create))
    answers: Iterator[Any] = stream(m.WATCH, iter(requests.get, None), over)
    return answers


def watch(prefix: str) -> None:
    """Note each event under a prefix; return when etcd watches."""
    begun = threading.Event()

    def read() -> None:
        for answer in watching(prefix, channel):
            at = now()
            if answer.created:
                begun.set()
            for event in answer.events:
                kind = "delete" if event.type == pb.Event.DELETE else "put"
                kv = event.kv
                size = len(kv.key) + len(kv.value)
                events.append((at, kv.key.decode(), kind, size, kv.mod_revision))

    threading.Thread(target=read, daemon=True).start()
    begun.wait(10)


def take() -> dict[str, Any]:
    taken = events[:]
    del events[: len(taken)]
    return {"events": taken}


def put(key: str, count: int, pause: float = 0.0) -> dict[str, Any]:
    """Put one after the other; when each was sent, and answered."""
    sent, answered = [], []
    for index in range(count):
        request = pb.PutRequest(key=key.encode(), value=b"%d" % index)
        sent.append(now())
        PUT(request)
        answered.append(now())
        time.sleep(pause)
    return {"sent": sent, "answered": answered}


def idle(ttl: int) -> dict[str, Any]:
    """Do the least that a member does: renew a lease, and watch.

    The lease is renewed every sixth of its TTL.
    """
    lease = unary(m.GRANT)(pb.LeaseGrantRequest(TTL=ttl)).ID
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    answers = stream(m.KEEPALIVE, iter(requests.get, None))

    def renew() -> None:
        while True:
            requests.put(pb.LeaseKeepAliveRequest(ID=lease))
            next(answers)
            time.sleep(ttl / 6)

    threading.Thread(target=renew, daemon=True).start()
    watch(f"probe-{lease}")
    return {}


class Crowd:
    """Open a connection with a watch for each member, and put once on each."""

    def __init__(self) -> None:
        self._channels: list[grpc.Channel] = []
        self._seen: list[int] = []

    def gather(self, prefix: str, count: int) -> None:
        begun = threading.Barrier(count + 1)
        self._channels = [connect() for _ in range(count)]
        self._seen = [0] * count
        self._prefix = prefix
        for index in range(count):
            threading.Thread(target=self._read, args=(index, begun), daemon=True).start()
        begun.wait(60)

    def _read(self, index: int, begun: threading.Barrier) -> None:
        for answer in watching(self._prefix, self._channels[index]):
            if answer.created:
                begun.wait(60)
            self._seen[index] += len(answer.events)

    def burst(self, size: int, total: int) -> dict[str, Any]:
        """Put a value of this size on each connection.

        Return when every watch here had seen all of the values.
        """

        def put_one(over: grpc.Channel) -> None:
            key = f"{self._prefix}{id(over)}-{given['number']}".encode()
            putter(over)(pb.PutRequest(key=key, value=b"x" * size))

        began = now()
        with ThreadPoolExecutor(len(self._channels)) as pool:
            list(pool.map(put_one, self._channels))
        while min(self._seen) < total:
            time.sleep(0.002)
        return {"asked_at": began, "at": now()}


if __name__ == "__main__":
    crowd = Crowd()
    serve(
        {
            "watch": watch,
            "take": take,
            "put": put,
            "idle": idle,
            "gather": crowd.gather,
            "burst": crowd.burst,
        }
    )
