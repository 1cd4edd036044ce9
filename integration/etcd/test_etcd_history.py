"""Test the client's history through faults and a restore.

One writer and one watch live through all faults together. A server is set back to a copy.
"""

import random
import shutil
import threading
import time

import pytest
from etcd_support import Seen, put, put_until_done

from rink.errors import EtcdClusterChanged
from rink.testing import etcd_cluster, local_etcd

pytestmark = pytest.mark.waits


def test_nothing_is_lost_or_doubled_while_nodes_are_killed_and_frozen(clients, prefix):
    """Nothing is lost or doubled while nodes are killed and frozen.

    One node at a time is struck, at random. Every answered write is seen once, in order.
    """
    key, seen, answered = prefix.encode(), Seen(), []
    stop = threading.Event()
    chance = random.Random(20240607)
    with etcd_cluster(3, fsync=False) as cluster:
        writer, client = clients(cluster.endpoints), clients(cluster.endpoints[::-1])
        start = client.range(key).header.revision + 1
        client.watch(key, b"", start, seen.deliver)

        def write():
            number = 0
            while not stop.is_set():
                answered.append(put_until_done(writer, key, b"%d" % number))
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        for _ in range(4):
            node = chance.choice(cluster.nodes)
            if chance.random() < 0.5:
                node.kill()
            else:
                node.freeze()
            time.sleep(chance.uniform(0.5, 3.0))
            node.thaw()
            node.start(wait=False)
            cluster.wait_healthy()
        stop.set()
        thread.join()
        seen.wait(lambda s: s.revisions and s.revisions[-1] >= answered[-1])
        # This key is all that changes: its revisions have no gaps.
        assert seen.revisions == list(range(start, seen.revisions[-1] + 1))
        assert set(answered) <= set(seen.revisions)
        values = [int(value) for value in seen.values]
        assert sorted(set(values)) == list(range(max(values) + 1))
        assert seen.broken is None
        print(f"{len(answered)} writes answered, {len(seen.events)} seen")
        client.close()
        writer.close()


def test_server_set_back_to_a_copy_ends_calls_and_watches_once(clients, prefix, tmp_path):
    """A server set back to a copy ends calls and watches once.

    It has the same cluster id at an older revision. Everybody learns of it, and then goes on.
    """
    key, seen, renewed = prefix.encode(), Seen(), Seen()
    folder, copy = tmp_path / "etcd", tmp_path / "copy"
    with local_etcd(fsync=False, data_dir=folder) as node:
        client = clients(node.endpoint)
        put(client, key, b"1")
        node.stop()
        shutil.copytree(folder, copy)
        node.start()
        for n in range(20):
            put_until_done(client, key, b"later %d" % n)
        watch_from = client.range(key).header.revision + 1
        client.watch(key, b"", watch_from, seen.deliver)
        stream = client.keepalives(renewed.deliver)
        lease = client.grant(60).lease
        stream.send(lease)
        renewed.wait(lambda s: s.items)
        before = client.guard
        node.stop()
        stream.send(lease)
        data = next(folder.glob("*/data"))
        shutil.rmtree(data)
        shutil.copytree(next(copy.glob("*/data")), data)
        node.start()
        assert isinstance(seen.wait_broken(), EtcdClusterChanged)
        after = client.guard
        assert (after.epoch, after.cluster_id) == (before.epoch + 1, before.cluster_id)
        assert after.revision < before.revision
        # From here on it is the cluster there is.
        assert put(client, key, b"2") > after.revision - 1
        # The lease was granted after the copy was made: gone, if it is asked for at all.
        stream.send(lease)
        renewed.wait(lambda s: len(s.items) == 2)
        assert renewed.items[1].ttl == 0
        assert client.guard.epoch == after.epoch
        client.close()
