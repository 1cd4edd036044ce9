"""Mutants of the etcd client: what is sent twice, believed too soon, or passed over."""

from __future__ import annotations

from mutant import engine, etcd

CALLS = [
    etcd(
        "a transaction without an answer is sent again",
        "transport",
        "if is_doubtful and want.once:",
        "if False:",
        "calls",
    ),
    etcd(
        "a transaction goes over a connection that has answered nothing",
        "transport",
        "if want.once and not connection.is_proven:",
        "if False:",
        "calls",
    ),
    etcd(
        "a grant that was sent twice is refused as its own double",
        "transport",
        "if is_doubtful and want.says_applied and want.says_applied in str(error):",
        "if False:",
        "calls",
    ),
    etcd(
        "every failure counts as never sent",
        "faults",
        "never_sent=any(text in lower for text in _NEVER_SENT),",
        "never_sent=True,",
        "faults",
        "calls",
    ),
    etcd(
        "an endpoint that fails is asked first for ever",
        "connections",
        "self._first = (self._first + 1) % len(self._connections)",
        "pass",
        "small_parts",
        "calls",
    ),
    etcd(
        "a connection that failed stays proven",
        "connections",
        "        connection.is_proven = False\n        with",
        "        with",
        "small_parts",
    ),
    etcd(
        "a channel that failed is used for ever",
        "connections",
        "            if channel is self._current:\n",
        "            if False:\n",
        "small_parts",
    ),
    etcd(
        "a failure of an earlier channel drops the one after it",
        "connections",
        "            if channel is self._current:\n",
        "            if channel := self._current:\n",
        "small_parts",
    ),
    etcd(
        "a channel is closed under calls that wait for their answers",
        "connections",
        "if not one.calls]",
        "]",
        "small_parts",
    ),
    etcd(
        "a channel that is slow to connect is replaced by one that must begin anew",
        "connections",
        "if is_silent and not channel.has_answered:",
        "if False:",
        "small_parts",
    ),
    etcd(
        "a member without a leader may answer",
        "transport",
        '_HAS_LEADER = ("hasleader", "true")',
        '_HAS_LEADER = ("hasleader", "false")',
        "calls",
    ),
    etcd(
        "an answer without a cluster id is taken for another cluster",
        "guard",
        "if not header.cluster_id:",
        "if False:",
        "guard",
        "calls",
    ),
    etcd(
        "a grpc-proxy is found out only when an answer lacks the id",
        "transport",
        "        self._refuse_proxy(connection, deadline)\n        return header\n",
        "        return header\n",
        "calls",
    ),
    etcd(
        "threads that gevent has replaced are not refused",
        "green",
        "if threads and not (queues and _grpc_yields()):",
        "if False:",
        "green",
    ),
    etcd(
        "threads that eventlet has replaced are not refused",
        "green",
        'if eventlet is not None and eventlet.is_monkey_patched("thread"):',
        "if False:",
        "green",
    ),
    etcd(
        "another cluster is taken for the same",
        "guard",
        "if cluster_id not in {0, header.cluster_id}:",
        "if False:",
        "guard",
        "calls",
    ),
    etcd(
        "a revision that goes back is believed",
        "guard",
        "if revision and header.revision < known.revision:",
        "if False:",
        "guard",
        "calls",
    ),
    etcd(
        "a raft term that goes back is believed",
        "guard",
        "if quorum and header.raft_term < known.raft_term:",
        "if False:",
        "guard",
        "calls",
    ),
    etcd(
        "an answer that was overtaken is taken for the past",
        "guard",
        "trouble = _trouble(header, known, now",
        "trouble = _trouble(header, now, now",
        "guard",
    ),
]

NO_THREADS = [
    etcd(
        "a channel that got no thread is used for ever",
        "stream",
        "            connection.drop(channel)\n",
        "",
        "threads",
    ),
    etcd(
        "a stream without threads costs a channel at each try",
        "stream",
        "            check_threads(GRPC_THREADS)\n",
        "            pass\n",
        "threads",
    ),
    etcd(
        "a ticker that failed to start is never started again",
        "stream",
        "            ticker.start()\n            self._ticker = ticker\n",
        "            self._ticker = ticker\n            ticker.start()\n",
        "threads",
    ),
]

TLS = [
    etcd(
        "files of certificates are read once",
        "tls",
        'self._value, self._trouble = self._read(), ""',
        'self._trouble = ""',
        "tls_files",
    ),
    etcd(
        "a file that cannot be read ends what needs a connection",
        "tls",
        "            except ConfigError as error:\n",
        "            except LookupError as error:\n",
        "tls_files",
    ),
    etcd(
        "a certificate that is half written is used",
        "tls",
        'if text.count(b"-----BEGIN ") != text.count(b"-----END "):',
        "if False:",
        "tls_files",
        "endpoints",
    ),
    etcd(
        "a certificate is used with the key of the one before",
        "tls",
        "    pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))\n",
        "",
        "tls_files",
    ),
    etcd(
        "a pair is used that was written while it was checked",
        "tls",
        'if pair.cert != _read_pem("cert", cert) or pair.key != _read_pem("key", key):',
        "if False:",
        "tls_files",
    ),
]

KEEPALIVES = [
    etcd(
        "the time of a keepalive is taken at its answer",
        "keepalive",
        "KeepAliveAnswer(sent.lease, sent.sent_at, answer.TTL, self._call_number)",
        "KeepAliveAnswer(sent.lease, self._clock(), answer.TTL, self._call_number)",
        "streams",
    ),
    etcd(
        "an answer belongs to the latest request",
        "keepalive",
        "return self._sent.popleft()",
        "return self._sent.pop()",
        "unanswered",
        "streams",
    ),
    etcd(
        "what is asked again has the time of the second asking",
        "keepalive",
        "attrs.evolve(request, handed_at=now)",
        "attrs.evolve(request, handed_at=now, sent_at=self._clock())",
        "streams",
    ),
    etcd(
        "answers of a past raft term count",
        "keepalive",
        "if answer.header.raft_term < guard.known.raft_term:",
        "if False:",
        "streams",
    ),
    etcd(
        "TTL 0 is believed at once",
        "keepalive",
        "gone = self._is_gone(sent.lease)",
        "gone = True",
        "streams",
    ),
    etcd(
        "what was asked of another cluster is asked of this one",
        "keepalive",
        "if request.epoch >= epoch]",
        "]",
        "unanswered",
    ),
]

PATIENCE = [
    etcd(
        "a silence is borne no longer the next time",
        "patience",
        "min(2 * self.seconds, self._longest)",
        "self.seconds",
        "streams",
    ),
    etcd(
        "a server that answers slowly is given up before it does",
        "patience",
        "max(2 * took, self._shortest)",
        "self._shortest",
        "streams",
    ),
]

LIFE = [
    etcd(
        "a watch asks for a sign of life although others are answered",
        "watch",
        "return max(heard_at, channel.heard_at) + ASK_AFTER_S",
        "return heard_at + ASK_AFTER_S",
        "life",
    ),
    etcd(
        "a stream that waits in vain keeps it to itself",
        "stream",
        "            channel.doubt()\n",
        "",
        "life",
    ),
    etcd(
        "a watch that was never created is excused by others' answers",
        "watch",
        "        if self._has_answered:\n",
        "        if True:\n",
        "life",
    ),
    etcd(
        "a keepalive without an answer is excused by others' answers",
        "keepalive",
        "due_at = max(oldest_at, heard_at)",
        "due_at = max(oldest_at, channel.heard_at)",
        "life",
    ),
    etcd(
        "a question for a sign of life renews a lease",
        "keepalive",
        "NO_LEASE = 0",
        "NO_LEASE = 7",
        "life",
    ),
    etcd(
        "a question for a sign of life is told as a lease's end",
        "keepalive",
        "        elif sent.lease != NO_LEASE:\n",
        "        else:\n",
        "life",
    ),
    etcd(
        "a question for a sign of life is asked again elsewhere",
        "keepalive",
        "            if sent.lease == NO_LEASE:\n",
        "            if False:\n",
        "unanswered",
    ),
]

WATCHES = [
    etcd(
        "who waits for an event looks up ten times a second",
        "channels",
        "max(timeout, LOOK_UP_S)",
        "timeout",
        "streams",
    ),
    etcd(
        "a watch goes on behind the last revision",
        "watch",
        "start_revision=self._delivered or self._start,",
        "start_revision=self._delivered + 1 if self._last else self._start,",
        "streams",
    ),
    etcd(
        "events that the list had already prove the history",
        "watch",
        "return self._delivered > self._listed and not all(",
        "return not all(",
        "streams",
    ),
    etcd(
        "deletions alone prove the history",
        "watch",
        " and not all(one.deleted for one in self._last)",
        "",
        "streams",
    ),
    engine(
        "the watch is not told of the list",
        "follower",
        "                self._watch.note_list(self._listed)\n",
        "                pass\n",
        "engine/test_engine_follower",
    ),
    etcd(
        "a keepalive call that is opened anew has the number of the last one",
        "keepalive",
        "        self._call_number += 1\n",
        "        self._call_number = 1\n",
        "streams",
    ),
    etcd(
        "other events in place of the last ones prove the history",
        "watch",
        "if again != self._last:",
        "if not again:",
        "streams",
    ),
    etcd(
        "no events in place of the last ones prove the history",
        "watch",
        "        if time.monotonic() > self._proof_due_at:\n            self._forget_history()\n",
        "",
        "streams",
    ),
    etcd(
        "events that came again are delivered twice",
        "watch",
        "if event.kv.mod_revision > self._delivered)",
        "if event.kv.mod_revision)",
        "streams",
    ),
    etcd(
        "a compacted watch is tried again for ever",
        "watch",
        "if answer.compact_revision:",
        "if False:",
        "streams",
    ),
    etcd(
        "a watch goes on in another history",
        "watch",
        "if header is not None and header.revision < self._delivered:",
        "if False:",
        "streams",
    ),
    etcd(
        "half a revision is delivered as a whole",
        "watch",
        "elif events[0].kv.mod_revision == self._delivered:",
        "elif False:",
        "streams",
    ),
]

ETCD = [*CALLS, *NO_THREADS, *TLS, *KEEPALIVES, *PATIENCE, *LIFE, *WATCHES]
