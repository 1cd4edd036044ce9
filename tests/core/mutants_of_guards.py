"""Break guards: the token that counts, writes that count once, vacuums."""

from __future__ import annotations

from mutant import Mutant

FILES = "guards/test_guards_on_files"
PARQUET = "guards/test_guard_parquet"
SERVERS = "../integration/guards/test_guards_on_servers"
POSTGRES = "../integration/guards/test_guards_postgres"
REDIS = "../integration/guards/test_guards_redis"


def lua(what: str, script: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a script of the guard of Redis."""
    return Mutant(what, f"rink/guards/lua/{script}.lua", old, new, tests)


def python(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a module of `rink/guards`."""
    return Mutant(what, f"rink/guards/{module}.py", old, new, tests)


GUARDS = [
    lua(
        "Redis writes a part whose token counts no more",
        "part",
        "if fence and less(token, fence) then return {'stale', fence} end\n"
        "if fence ~= token then return {'unknown', fence or ''} end\n",
        "",
        SERVERS,
    ),
    lua(
        "Redis writes a part that another attempt has written",
        "part",
        "if mark and not less(mark, batch) then return {'before'} end\n",
        "",
        SERVERS,
    ),
    lua(
        "Redis does not mark a part that it has written",
        "part",
        "redis.call('HSET', at, 'mark:' .. query, batch)\n",
        "",
        SERVERS,
    ),
    lua(
        "a part of which half is written goes on with other commands",
        "part",
        "  if of_batch ~= batch or of_digest ~= digest then return {'torn', torn} end\n",
        "",
        REDIS,
    ),
    lua(
        "a part of which half is written is written whole again",
        "part",
        "  done = tonumber(carried_out)\n",
        "",
        REDIS,
    ),
    lua(
        "Redis lets a query be cut into other parts",
        "begin",
        "  if known and known ~= parts then return {'cut', known} end\n",
        "",
        SERVERS,
    ),
    python(
        "a lower token lowers the fence of a database",
        "sql",
        "                where=fences.c.token <= insert.excluded.token,\n",
        "",
        FILES,
    ),
    python(
        "a database commits a part whose token counts no more",
        "sql",
        "        seen = self._guard._seen(step, self.fence, lock=True)  # noqa: SLF001\n"
        "        self._before(seen, self._guard._shown)  # noqa: SLF001\n",
        "",
        FILES,
        SERVERS,
    ),
    python(
        "a commit that was refused leaves the rows of its part locked",
        "sql",
        "            if not self._transaction.is_active:\n",
        "            if False:\n",
        POSTGRES,
    ),
    python(
        "a database writes a part that another attempt has written",
        "sql",
        "                where=marks.c.batch < insert.excluded.batch,\n",
        "",
        SERVERS,
    ),
    python(
        "files of a stale token are published",
        "parquet",
        "            self._refuse_stale(fence, fold)\n"
        "            if fold.fences.get(fence.name) != fence.token:\n",
        "            if fold.fences.get(fence.name, 0) < fence.token:\n",
        FILES,
    ),
    python(
        "a batch of files is published twice",
        "parquet",
        "            if is_published:\n                return None\n            files",
        "            files",
        FILES,
    ),
    python(
        "files are published that are not there as they were written",
        "parquet",
        "            self._look_at(files, fold)\n",
        "",
        PARQUET,
    ),
    python(
        "files are published that a vacuum has condemned",
        "parquet",
        "if file.path in fold.condemned or not is_there:",
        "if not is_there:",
        PARQUET,
    ),
    python(
        "a vacuum removes what is published",
        "parquet",
        "            if name in published:\n                continue\n",
        "",
        PARQUET,
    ),
    python(
        "a vacuum removes the end of a volume",
        "parquet_log",
        "if number >= newest or number % VOLUME == 0:",
        "if number >= newest:",
        PARQUET,
    ),
    python(
        "each fold names all files that there ever were",
        "parquet_log",
        "        if self.number % VOLUME == 0:\n            self.files = []\n",
        "",
        PARQUET,
    ),
    python(
        "a guard that outlives its directory takes the next one for its own",
        "parquet_log",
        'if self._fold.log not in {"", entry.get("log")}:',
        "if False:",
        PARQUET,
    ),
    python(
        "a manifest that a listing lacks is taken for damage",
        "parquet_log",
        "            while self._fold.number < number:\n"
        "                self._apply(self._fold.number + 1, number)\n",
        "            if self._fold.number < number:\n                self._apply(number, number)\n",
        PARQUET,
    ),
    python(
        "SQL notes its tables as made before their commit",
        "sql_database",
        "            self._are_made = True  # only now",
        "                self._are_made = True  # only now",
        "guards/test_guard_sqlite",
    ),
]
