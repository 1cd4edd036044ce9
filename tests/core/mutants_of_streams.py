"""Break streams: commits, repeated events, trimming, and crashes."""

from __future__ import annotations

from mutant import Mutant

STEPS = "../integration/streams/test_steps"
WORKERS = "streams/test_workers_in_memory"
TROUBLE = "streams/test_trouble_in_memory"
CAREFUL = "streams/test_careful_in_memory"
BUFFER = "streams/test_buffer"
POISON = "streams/test_poison"
APPENDER = "streams/test_appender"
PROCESSORS = "streams/test_processors"
TYPES = "streams/test_record_types"


def lua(what: str, script: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a script, for tests on a real Redis."""
    return Mutant(what, f"rink/streams/store/lua/{script}.lua", old, new, tests or (STEPS,))


def base(what: str, script: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a script that all rooms share."""
    return Mutant(what, f"rink/redis/lua/{script}.lua", old, new, tests or (STEPS,))


def python(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a module of `rink/streams`."""
    return Mutant(what, f"rink/{module}.py", old, new, tests)


STREAMS = [
    lua(
        "a commit counts whatever its token",
        "common",
        "  if fence and less(token, fence) then return {'stale', fence} end\n"
        "  if fence ~= token or not offset",
        "  if not offset",
    ),
    lua(
        "a commit counts wherever the offset is",
        "common",
        "  if offset == expected then return nil, ceiling end",
        "  do return nil end",
    ),
    lua(
        "a commit that was applied is not known again",
        "common",
        "  if offset == new then return {'ok'} end\n",
        "",
    ),
    lua(
        "ids are compared as text",
        "common",
        "  if a_ms ~= b_ms then return less(a_ms, b_ms) end\n  return less(a_seq, b_seq)",
        "  return a < b",
    ),
    base(
        "tokens are compared as text",
        "base",
        "  if #a ~= #b then return #a < #b end\n",
        "",
    ),
    lua(
        "trimming looks at who is furthest",
        "partition",
        "return id and before(id, other) and id or other",
        "return id and before(other, id) and id or other",
    ),
    lua(
        "a take leaves the fence as it was",
        "take",
        "redis.call('HSET', at, 'fence', token, 'open'",
        "redis.call('HSET', at, 'open'",
    ),
    lua(
        "a lower token may take",
        "take",
        "if fence and less(token, fence) then return {'stale', fence} end\n",
        "",
    ),
    lua(
        "a take that is asked again is a crash more",
        "take",
        "if open == '1' and fence ~= token then",
        "if open == '1' then",
    ),
    lua(
        "a committed event that is missing is not looked for",
        "take",
        "  or offset and anchored == '1' and not loses and not has_entry(stream, offset)",
        "",
    ),
    lua(
        "an owner that comes back is believed",
        "take",
        "if known then\n  local seen",
        "if false then\n  local seen",
    ),
    lua(
        "a quarantined partition gives its events along",
        "take",
        "if not quarantined and args.first > 0 then",
        "if args.first > 0 then",
    ),
    lua(
        "outputs are written whether there is room or not",
        "commit",
        "if free < wanted then return",
        "if false then return",
    ),
    lua(
        "a commit that is refused has made room",
        "commit",
        "could_have(part, wanted, part.commit)",
        "room(part, wanted, part.commit)",
    ),
    lua(
        "an append that found no room is not remembered",
        "append",
        "local answered_ids =",
        "if count == 0 then return {0, ''} end\nlocal answered_ids =",
    ),
    lua(
        "after a loss of everything what was sent since is passed over",
        "unquarantine",
        "args.start == 'latest' and last or '0-0'",
        "last",
    ),
    lua(
        "outputs are written until one cannot be",
        "commit",
        "if kind ~= 'stream' and kind ~= 'none' then return",
        "if false then return",
    ),
    lua(
        "an event that is gone is committed",
        "commit",
        "if not args.loses and not has_entry(stream, new) then",
        "if false then",
    ),
    lua(
        "an orderly end is none",
        "close",
        "redis.call('HSET', KEYS[1], 'open', '0')\n",
        "",
    ),
    lua(
        "an append that is repeated is appended again",
        "append",
        "  if number == last then return {tonumber(count), ids} end\n",
        "",
    ),
    lua(
        "a requeued event is for every processor",
        "requeue",
        "'d', data or '', 'only', args.processor)",
        "'d', data or '')",
    ),
    lua(
        "who lost what to the oldest is not counted",
        "partition",
        "    count_lost(part, all[i], unread)\n",
        "",
    ),
    python(
        "nothing goes on when Redis is full",
        "streams/store/scripts",
        ' else "allow-oom"',
        ' else ""',
        STEPS,
    ),
    python(
        "more is yielded than max_uncommitted",
        "streams/consumer/buffer",
        "        count = min(count, self.may_yield)\n",
        "",
        BUFFER,
    ),
    python(
        "what is only gathered is finished by a commit from aside",
        "streams/consumer/buffer",
        "        if self.held_back:\n",
        "        if False:\n",
        BUFFER,
    ),
    python(
        "one by one, more is yielded than Redis knows of",
        "streams/consumer/buffer",
        " or entry_ids.order(entry.id) > ceiling:",
        ":",
        BUFFER,
    ),
    lua(
        "what comes late lowers what may have begun",
        "common",
        "  if ceiling and not before(ceiling, to) then return false end\n",
        "",
    ),
    lua(
        "Redis does not note when it heard of an owner",
        "extend",
        ", 'told', args.now_us)",
        ")",
        CAREFUL,
    ),
    python(
        "whoever asks first is tried first",
        "streams/consumer/poison",
        "        return mine is not None and any(other < mine for other in "
        "self._expected.values())",
        "        return False",
        POISON,
    ),
    python(
        "whoever never asks for its turn is waited for without end",
        "streams/consumer/poison",
        " and now() < until:",
        ":",
        POISON,
    ),
    lua(
        "who has ended in order is open again after a reconnect",
        "take",
        "end\n\n-- Return how many owners have",
        "end\nredis.call('HSET', at, 'open', '1')\n\n-- Return how many owners have",
    ),
    python(
        "a commit under way is made anew",
        "streams/consumer/buffer",
        "if self._under_way is None and self._finished:",
        "if self._finished:",
        BUFFER,
    ),
    python(
        "after a failure all come together again",
        "streams/consumer/buffer",
        "self._alone = max(self._alone or (0, 0), entry_ids.order(last.id))",
        "pass",
        BUFFER,
    ),
    python(
        "an event that was given up leaves no letter",
        "streams/consumer/buffer",
        "entry.skipped, entry.letter = True, self._given_up[entry.id]",
        "entry.skipped = True",
        BUFFER,
    ),
    python(
        "what was given up waits for an event that succeeds",
        "streams/consumer/buffer",
        "        self._finish_skipped()\n        while self._out:",
        "        while self._out:",
        BUFFER,
    ),
    python(
        "who is cancelled and returns has finished what it was given",
        "streams/consumer/grant_run",
        "                _raise_if_ending(work)",
        "                pass",
        TROUBLE,
    ),
    python(
        "what middleware refused is finished where the function returns",
        "streams/consumer/grant_run",
        "            delivery.raise_failure()\n",
        "",
        PROCESSORS,
    ),
    python(
        "what was gathered and not given is taken for processed",
        "streams/consumer/owner",
        "            self.stop()\n            self._take_back(entries)",
        "            self.stop()\n            entries.clear()",
        WORKERS,
    ),
    python(
        "a call that is repeated has another number",
        "streams/producer/appender",
        "                self._trouble = error\n",
        "                self._trouble = error\n                self._number += 1\n",
        APPENDER,
    ),
    lua(
        "a mark that comes late names an event of before",
        "mark",
        "if marked and less(args.now_us, marked) then return {'ok'} end",
        "",
    ),
    lua(
        "the marks of one owner hold back those of the next",
        "take",
        ", 'marked', args.now_us)",
        ")",
    ),
    lua(
        "a take that comes late begins anew",
        "take",
        "if not known and not late then",
        "if not known then",
    ),
    python(
        "an error that is no Exception ends the worker",
        "streams/consumer/failure_handler",
        '    return RuntimeError(f"the processor raised {type(error).__name__}: {said(error)}")',
        "    return error",
        PROCESSORS,
    ),
    python(
        "outputs go to another app's stream whatever its partitions",
        "streams/consumer/committer",
        "        for stream in {stream for stream, _ in outputs}:  # it may belong to another app",
        "        for stream in ():",
        TROUBLE,
    ),
    python(
        "a client is waited for without end",
        "redis/async_client",
        '            kwargs["socket_timeout"] = ANSWER_TIMEOUT_S',
        "            pass",
        "streams/test_async_client",
    ),
    python(
        "the first send does not wait for Redis",
        "streams/app_connections",
        "                        error = away\n",
        "                        error = away\n                        break\n",
        "streams/test_first_send",
    ),
    python(
        "of a tuple only as many values are sent as its type has",
        "streams/records/shapes",
        "        if len(value) != len(dumps):",
        "        if False:",
        "streams/test_streams_codec",
    ),
    python(
        "what is sent is not compared with what comes back",
        "streams/codec",
        "            if self._same(record, self._from_json(_loads(text))):",
        "            if self._from_json(_loads(text)) is not None:",
        TYPES,
    ),
    python(
        "a record within another may be of a subclass",
        "streams/records/record_shapes",
        "        return value.__class__ is kind and bool(",
        "        return bool(",
        TYPES,
    ),
    python(
        "types of the same JSON may stand beside each other",
        "streams/records/unions",
        "    both = member.kinds & other.kinds\n",
        "    both = member.kinds & other.kinds & set()\n",
        TYPES,
    ),
    python(
        "keys of a dict may be no text",
        "streams/records/type_shapes",
        "            if keys.kinds != {str}:",
        "            if False:",
        TYPES,
    ),
    python(
        "a time of day loses a zone whose offset depends on the day",
        "streams/records/scalars",
        "    if value.tzinfo is not None and value.utcoffset() is None:",
        "    if False:",
        TYPES,
    ),
    python(
        "a method gives the partition key",
        "streams/records/partition_keys",
        "        if inspect.isroutine(getattr(record, name, None)):",
        "        if False:",
        "streams/test_app",
    ),
    python(
        "a record of msgspec is not compared with what comes back",
        "streams/msgspec_codec",
        "        if record.__class__ is back.__class__ and record == back:",
        "        if back is not None:",
        "streams/test_msgspec_codec",
    ),
    python(
        "an app that is closed is opened again by who waits",
        "streams/app_connections",
        "                while self.times_closed == times:",
        "                while True:",
        "streams/test_first_send",
    ),
    python(
        "an event is given beside one that came alone",
        "streams/consumer/buffer",
        "            if (alone or self.has_one_alone) and self.has_yielded:",
        "            if alone and self.has_yielded:",
        BUFFER,
    ),
    python(
        "whoever asks goes on where Redis is away",
        "streams/admin/targets",
        "            unavailable.set()\n",
        "",
        "streams/test_admin_targets",
    ),
]
