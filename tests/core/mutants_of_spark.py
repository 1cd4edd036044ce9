"""Break Spark's source, sink and jobs.

The mutants concern who may go on, what is kept, and what is written once.
"""

from __future__ import annotations

from mutant import Mutant

SOURCE = "../integration/spark/test_source_steps"
BEFORE_4_2 = "../integration/spark/test_source_before_4_2"
SINK = "../integration/spark/test_sink_steps"
BOUNDS = "../integration/spark/test_sink_bounds"
LOSSES = "../integration/spark/test_source_bounds"
ONCE = "../integration/spark/test_sink_once"
BATCHES = "spark/test_spark_batches"
JOBS = "spark/test_spark_jobs"
ENDS = "spark/test_spark_ends"
QUERIES = "spark/test_spark_queries"
WATCH = "spark/test_spark_watch"
RANKING = "spark/test_spark_ranking"
HOURLY = "spark/test_spark_hourly"
TABLES = "spark/test_spark_tables"
TIMES = "spark/test_spark_times"
ROWS = "spark/test_spark_rows"
OFFSETS = "spark/test_spark_offsets"
OPTIONS_ON_REDIS = "../integration/spark/test_source_and_sink_options"


def lua(what: str, script: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a script, for tests on a real Redis."""
    return Mutant(what, f"rink/spark/lua/{script}.lua", old, new, tests)


def python(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a module of `rink/spark`."""
    return Mutant(what, f"rink/{module}.py", old, new, tests)


SPARK = [
    lua(
        "a stale driver's query goes on reading",
        "source/follow",
        "if fence and less(args.token, fence) then return {'stale', fence} end\n",
        "",
        SOURCE,
    ),
    lua(
        "of two readers of one group both go on",
        "source/follow",
        "if run and less(args.run, run) then return {'other'} end\n",
        "",
        SOURCE,
    ),
    lua(
        "a query reads on where events are gone",
        "source/follow",
        "if lacks and args.strict then\n",
        "if false then\n",
        SOURCE,
    ),
    lua(
        "a checkpoint that was put back holds nothing back",
        "source/follow",
        "elseif is_first and offset ~= start or before(offset, start) then",
        "elseif before(offset, start) then",
        SOURCE,
    ),
    lua(
        "a commit that comes late sets a query back",
        "source/advance",
        "if before(offset, args.to) then",
        "if true then",
        SOURCE,
    ),
    lua(
        "a query trims although Redis lost how long events stay",
        "common",
        "if part.declared or part.is_known or redis.call('EXISTS', part.segments) == 0 then",
        "if true then",
        SOURCE,
    ),
    python(
        "a query does not know how long its app keeps events",
        "spark/source/group",
        "PartitionBounds(0) if declared is None else partition_bounds(declared)",
        "PartitionBounds(0)",
        SOURCE,
    ),
    python(
        "an empty option counts as left out",
        "spark/options",
        'if not by_name.get(name.lower(), "given").strip():',
        "if False:",
        OPTIONS_ON_REDIS,
    ),
    python(
        "a table keeps another password of its URL",
        "spark/tables",
        'if any("password" in name.lower() and value for name, value in parts.items()):',
        'if parts.get("password"):',
        TABLES,
    ),
    python(
        "queries without an id are one",
        "spark/sink/writers",
        "if not query:  # all such queries would count as one",
        "if False:",
        OPTIONS_ON_REDIS,
    ),
    python(
        "the letters of a text are jobs",
        "spark/jobs/job_list",
        "if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):",
        "if not isinstance(listed, Iterable):",
        WATCH,
    ),
    python(
        "a function of a query waits for its own run",
        "spark/jobs/queries",
        "if self._called_on == threading.get_ident():",
        "if False:",
        HOURLY,
    ),
    lua(
        "a new checkpoint takes a group that is in use",
        "source/begin",
        "if offset and advanced == '1' then return {'used', offset} end\n",
        "",
        SOURCE,
    ),
    python(
        "a page is not read from the entry before it",
        "spark/source/reading",
        "        if entries and entries[0][0] == at.encode():\n"
        "            return entries[1:], True\n        return entries, False",
        "        return [entry for entry in entries if entry[0] != at.encode()], True",
        SOURCE,
    ),
    python(
        "what a partition does not need goes to nobody",
        "spark/source/offsets",
        "    while left and waiting:",
        "    if left and waiting:",
        OFFSETS,
    ),
    lua(
        "a stale driver decides on a batch",
        "sink/decide",
        "if fence and less(token, fence) then return {'stale', fence} end\n",
        "",
        SINK,
    ),
    lua(
        "a batch that was decided is decided anew",
        "sink/decide",
        "if decided and not less(decided, batch) and not replaces then",
        "if false then",
        SINK,
    ),
    lua(
        "of a checkpoint that went back, the sink takes other rows for those that it wrote",
        "sink/decide",
        "  if decided ~= batch then return {'back', decided} end\n",
        "",
        SINK,
    ),
    python(
        "of a checkpoint that went back, a guarded batch takes other rows for those that it wrote",
        "spark/batches",
        "if part.written is not None and part.written > self._batch.number:",
        "if part.written is None:",
        BATCHES,
    ),
    python(
        "rows that Spark has cut otherwise are written",
        "spark/batches",
        "    if pc.any(pc.not_equal(rows.column(_CUT), number)).as_py():",
        "    if False:",
        BATCHES,
    ),
    python(
        "what threads of a job do is not ended when its function returns",
        "spark/jobs/job",
        "        quietly(self._tag.cancel)\n        if self._returned.is_set():\n"
        "            return\n",
        "        if self._returned.is_set():\n            return\n"
        "        quietly(self._tag.cancel)\n",
        JOBS,
    ),
    lua(
        "a replay of an older batch ends the one that is not published yet",
        "sink/decide",
        "if decided ~= batch then return {'back', decided} end",
        "if decided ~= batch then return {'again', seq, '{}'} end",
        SINK,
    ),
    lua(
        "a batch takes the place of one that is not published yet",
        "sink/decide",
        "if manifest ~= '' and seq ~= args.replaces then return {'pending', seq, manifest} end\n",
        "",
        SINK,
    ),
    lua(
        "another query takes a sink under the same token",
        "sink/decide",
        "if last and last ~= query and not less(last_token, token) then return {'other', "
        "last} end\n",
        "",
        SINK,
    ),
    lua(
        "a sink's numbers begin anew where it was removed",
        "sink/decide",
        "seq = later_than(last_seq)",
        "seq = string.format('%.0f', tonumber(last_seq or '0') + 1)",
        SINK,
    ),
    lua(
        "what was moved is not counted",
        "sink/publish",
        "put(mark, 'seq', seq, 'done', done + moved)",
        "put(mark, 'seq', seq, 'done', done)",
        SINK,
    ),
    lua(
        "whoever comes late publishes again",
        "sink/publish",
        "if last_seq and less(seq, last_seq) then return {'late', first + count} end\n",
        "",
        SINK,
    ),
    lua(
        "a list that is not whole is moved",
        "sink/publish",
        "if redis.call('LLEN', list) ~= left then return {'gone', done} end\n",
        "",
        SINK,
    ),
    lua(
        "staging adds again what was added",
        "sink/stage",
        "if length == args.count + #ARGV - 1 then return {'ok'} end\n",
        "",
        BOUNDS,
    ),
    lua(
        "a step of publishing ends at no size",
        "sink/publish",
        "while moved < wanted and size < args.max_bytes do",
        "while moved < wanted do",
        BOUNDS,
    ),
    python(
        "a step of staging ends at no size",
        "spark/sink/staging",
        "if len(held) >= MAX_STEP_RECORDS or size > MAX_STEP_BYTES:",
        "if len(held) >= MAX_STEP_RECORDS:",
        BOUNDS,
    ),
    lua(
        "a decision on what is written once has no end",
        "sink/decide",
        "if args.kept_s > 0 then redis.call('EXPIRE', sink, args.kept_s) end\n",
        "redis.call('PERSIST', sink)\n",
        ONCE,
    ),
    lua(
        "marks of what is written once have no end",
        "sink/publish",
        "if args.kept_s > 0 then redis.call('EXPIRE', mark, args.kept_s) end\n",
        "",
        ONCE,
    ),
    lua(
        "a decision may outlive the marks of what is published of it",
        "sink/open",
        "args.kept_s, 'NX')",
        "args.kept_s)",
        ONCE,
    ),
    python(
        "what a query has written ends, too",
        "spark/sink/publishing",
        "    return DECIDED_TTL_S if once else 0",
        "    return DECIDED_TTL_S",
        ONCE,
    ),
    python(
        "a list that is lost while others are moved is taken for one that was not begun with",
        "spark/sink/publishing",
        "raise _Lost(move, before + done - move.first)",
        "raise _Lost(move, done)",
        SINK,
    ),
    python(
        "a staged list is not counted before a batch is decided",
        "spark/sink/publishing",
        "            self._count(manifest)\n",
        "            pass\n",
        SINK,
    ),
    python(
        "a batch of which something put aside is gone leaves the rest for 30 days",
        "spark/sink/publishing",
        "            clear_after(error, partial(self._drop_undecided, manifest))\n",
        "",
        SINK,
    ),
    python(
        "what was decided is removed where it is not whole any more",
        "spark/sink/publishing",
        "if not decided or _loads(decided) != manifest:",
        "if True:",
        SINK,
    ),
    python(
        "a hole is found only when it is reached",
        "spark/sink/publishing",
        "            raise _Lost(lost[0], sum(in_each.values()))",
        "            pass",
        SINK,
    ),
    python(
        "an abort removes what may be decided",
        "spark/sink/writers",
        "    if all(isinstance(message, Staged) for message in messages):\n        return\n",
        "",
        SINK,
    ),
    python(
        "Spark jobs are cancelled once",
        "spark/jobs/job",
        "            quietly(self._tag.cancel)\n            waited",
        "            waited",
        JOBS,
    ),
    python(
        "a role is let go before its function has returned",
        "spark/jobs/job",
        "        while not self._returned.wait(CANCEL_INTERVAL_S):",
        "        while False:",
        JOBS,
    ),
    python(
        "what is to be stopped on a loss is not stopped where it comes late",
        "spark/jobs/job",
        "        if self.lost.is_set():\n            self._call_stops()\n",
        "",
        JOBS,
    ),
    python(
        "a query begins before the fence is raised",
        "spark/jobs/queries",
        "        for guard in self._guards:\n            guard.raise_fence(fence)\n",
        "",
        QUERIES,
    ),
    python(
        "a job that returned without its role has succeeded",
        "spark/jobs/job",
        "self.lost.is_set() or not self.role.is_held",
        "self.lost.is_set()",
        JOBS,
    ),
    python(
        "a driver whose JVM is gone keeps its roles",
        "spark/jobs/driver_exit",
        "        self._rink.leave(now=True)  # nothing runs here any more, so release all "
        "roles at once\n",
        "        pass\n",
        ENDS,
    ),
    python(
        "a driver that stood by while its JVM went keeps the role of its query",
        "spark/jobs/queries",
        "            if self._runner.is_useless():\n                return\n"
        "            failures += 1",
        "            failures += 1",
        ENDS,
    ),
    python(
        "a group that was left under its runner ends it without a word",
        "spark/jobs/driver_exit",
        "        if error is not None:\n            self.give_up(error)\n",
        "",
        ENDS,
    ),
    python(
        "the thread of a query ends without a word",
        "spark/jobs/queries",
        "                self._runner.give_up(error)\n",
        "                pass\n",
        ENDS,
    ),
    python(
        "a job whose start was interrupted lets go of its role while its function runs",
        "spark/jobs/job",
        "            else:\n                self.cancel()\n            if not",
        "            else:\n                self._has_returned(error)\n            if not",
        JOBS,
    ),
    python(
        "a job runs beside a query of its name that was declared meanwhile",
        "spark/jobs/runner",
        "if self._is_closed or is_query or self._runs(job_id):",
        "if self._is_closed or self._runs(job_id):",
        JOBS,
    ),
    Mutant(
        "a job of a driver that is not ranked yet is another driver's",
        "rink/rink.py",
        "is_ranked = wait.rank() is not None",
        "is_ranked = True",
        (RANKING,),
    ),
    Mutant(
        "a job whose role is being handed over runs nowhere",
        "rink/rink.py",
        "if role is not None or self.owner(name) != self.name:",
        "if True:",
        (RANKING,),
    ),
    Mutant(
        "a list of jobs is looked at by the clock alone",
        "rink/base_rink.py",
        "            self._gate = gate\n            self._callback()\n",
        "            self._gate = gate\n",
        (RANKING,),
    ),
    python(
        "two runs of a query that ends overlap",
        "spark/jobs/queries",
        "with self.turn(lambda: _raise_if_ended(job)):",
        "with contextlib.nullcontext():",
        HOURLY,
    ),
    python(
        "a run of a query is asked for beside the one that goes on",
        "spark/jobs/runner",
        "        with query.turn(self._refuse_closed, tells=True):\n",
        "        if True:\n",
        HOURLY,
    ),
    python(
        "hours that a query has missed are made up for",
        "spark/jobs/queries",
        "max(due + self._every, time.monotonic())",
        "due + self._every",
        HOURLY,
    ),
    python(
        "a query whose role was lost has ended by itself",
        "spark/jobs/runner",
        "            return job.result()\n",
        "            return job._result\n",
        HOURLY,
    ),
    python(
        "an id that cannot be a role ends the look at the list",
        "spark/jobs/job_list",
        "except ConfigError as error:",
        "except ZeroDivisionError as error:",
        WATCH,
    ),
    python(
        "more jobs run beside each other than were asked for",
        "spark/jobs/job_list",
        "or len(self._running) >= self._at_once:",
        "or False:",
        WATCH,
    ),
    lua(
        "ids behind which all was trimmed are begun at",
        "common",
        "  if from == '0-0' and removed(stream) ~= '0' then return 'trimmed' end\n",
        "",
        LOSSES,
    ),
    lua(
        "a time asks for what is left of its window",
        "common",
        "local id, info = string.match(start, '^%(?(%d+%-%d+)$'), info_of(stream)",
        "local id, info = string.match(start, '^(%d+%-%d+)$'), info_of(stream)",
        LOSSES,
    ),
    lua(
        "an event that somebody has deleted is not missed",
        "common",
        "  return 'deleted'\n",
        "  return ''\n",
        LOSSES,
    ),
    lua(
        "a checkpoint that is older than its group is not told as such",
        "source/follow",
        "if is_first and offset and before(start, offset) then older = offset end\n",
        "",
        SOURCE,
    ),
    python(
        "a start that fails leaves its group behind",
        "spark/source/group",
        "            clear_after(error, self._withdraw)\n",
        "            del error\n",
        SOURCE,
    ),
    python(
        "a failure takes away the group of a batch that was planned",
        "spark/source/readers",
        "        group.has_begun()\n",
        "",
        SOURCE,
    ),
    lua(
        "a start that fails takes away the group of another driver",
        "source/withdraw",
        "by and by ~= args.by or ",
        "",
        SOURCE,
    ),
    python(
        "a table keeps a password",
        "spark/tables",
        '    _refuse_password(written.get("redis", ""))\n',
        "",
        TABLES,
    ),
    python(
        "columns of one table bring its options to the read of another stream",
        "spark/tables",
        "    if all(not own.keys().isdisjoint(names) for names in _PLACE):",
        "    if False:",
        TABLES,
    ),
    python(
        "a time without a zone is taken to be in UTC",
        "spark/times",
        '    if not (match["zone"] or zone):\n',
        '    if not (match["zone"] or zone or "UTC"):\n',
        TIMES,
    ),
    python(
        "names within columns keep the case of the query, and their values are lost",
        "spark/rows",
        "        if self._schema != self._asked:",
        "        if False:",
        ROWS,
    ),
    python(
        "a query that reads what is available now reads on what comes meanwhile",
        "spark/source/readers",
        "        self._target = self._last()\n",
        "        self._target = None\n",
        LOSSES,
    ),
    python(
        "fenced cuts by the bytes of keys that are equal by others",
        "spark/batches",
        '            return {kind.collation} - {"UTF8_BINARY"}',
        "            return set()",
        BATCHES,
    ),
    Mutant(
        "what passes in Redis is waited for only outside of pipelines",
        "rink/redis/error_map.py",
        '_IN_A_PIPELINE.sub("", text, count=1)',
        "text",
        ("streams/test_redis_error_map",),
    ),
    python(
        "a start that is refused leaves partitions registered",
        "spark/source/group",
        "        looked = self._begin(edges, dry_run=True)\n",
        "        looked = {}\n",
        LOSSES,
    ),
    python(
        "what is trimmed before the first page of a batch is passed over",
        "spark/source/readers",
        "            removed[number] = int(count)\n",
        "            del count\n",
        LOSSES,
    ),
    python(
        "a missing field is read as None",
        "spark/rows",
        "            if column.null_count and name in self._defaults:\n                return None",
        "            if False:\n                return None",
        ROWS,
    ),
    python(
        "events that were requeued for a processor are read",
        "spark/rows",
        "            if named.get(_ONLY, self._group) != self._group:\n                continue\n",
        "",
        ROWS,
    ),
    python(
        "before Spark 4.2, a restart passes a batch that was not committed",
        "spark/source/readers",
        "        if begin == to:\n",
        "        if False:\n",
        BEFORE_4_2,
    ),
    python(
        "before Spark 4.2, a restart that asks first is taken for a new checkpoint",
        "spark/source/readers",
        "        if self._named is None and not group.is_registered(range(self._count)):\n",
        "        if self._named is None:\n",
        BEFORE_4_2,
    ),
    python(
        "before Spark 4.2, the last batch holds trimming back for ever",
        "spark/source/readers",
        "        self._named = to\n",
        "",
        BEFORE_4_2,
    ),
    python(
        "a limit that Spark never asks for is taken",
        "spark/compat",
        "if most is not None and not HAS_READ_LIMITS:",
        "if False:",
        BEFORE_4_2,
    ),
]
