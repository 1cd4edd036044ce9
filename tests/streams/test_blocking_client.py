"""Close the connections of blocking clients."""

from redis.sentinel import Sentinel

from rink.redis.blocking_client import close_idle


def test_client_behind_sentinels_closed_closes_those_to_them_too(monkeypatch):
    sentinels = Sentinel([("127.0.0.1", 1), ("127.0.0.1", 2)], socket_timeout=1)
    client = sentinels.master_for("orders")
    closed = []
    for one in (client, *sentinels.sentinels):
        monkeypatch.setattr(
            one.connection_pool,
            "disconnect",
            lambda inuse_connections, one=one: closed.append((one, inuse_connections)),
        )
    close_idle(client)
    assert closed == [(one, False) for one in (client, *sentinels.sentinels)]
