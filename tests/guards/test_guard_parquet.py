"""Test ParquetGuard: what it publishes, refuses and removes.

Damaged directories are tested, too.
"""

import json
import os
import pickle
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from guards_worlds import SCHEMA, ParquetWorld, batch, fence

from rink.errors import ConfigError, StaleToken, StateError, UsageError
from rink.guards import GuardError, ParquetGuard, parquet_log
from rink.guards.parquet_log import FOLD_INTERVAL


@pytest.fixture
def world(tmp_path):
    made = ParquetWorld(tmp_path)
    yield made
    made.close()


def fresh(world):
    """Return the same directory, as another process sees it."""
    return ParquetGuard(world.guard._directory)


def manifests(world):
    return sorted((world.guard._directory / "manifests").glob("*.json"))


def files(world):
    return sorted((world.guard._directory / "data").rglob("*.parquet"))


def results_of(world, one, token=1):
    world.guard.begin(fence(token), one)
    return [world.write_part(fence(token), one, number) for number in range(one.parts)]


def fill(world, count, token=1, query="q1", first=0):
    for number in range(first, first + count):
        world.write_batch(fence(token), batch(number, query, 1))


def age(*paths):
    for path in paths:
        os.utime(path, (1, 1))


def test_nothing_is_seen_before_a_batch_is_published_and_then_all_of_it(world):
    results = results_of(world, batch(0))
    assert (world.guard.files(), world.guard.schema) == ([], None)
    assert world.guard.read().num_rows == 0
    world.guard.finish(fence(1), batch(0), results[::-1])
    assert [Path(path).name.split("-")[1] for path in world.guard.files()] == ["0", "1"]
    assert world.guard.schema == SCHEMA
    assert world.contents() == world.whole(batch(0))
    assert [(one.part, one.rows) for one in results] == [(0, 1), (1, 1)]
    assert [Path(path).stat().st_size for path in world.guard.files()] == [
        one.bytes for one in results
    ]
    assert pickle.loads(pickle.dumps(results)) == results


def test_rows_come_as_tables_batches_and_dicts_into_one_file(world):
    world.guard.begin(fence(1), batch(0, parts=1))
    part = world.guard.part(fence(1), batch(0, parts=1), 0)
    with part as step:
        step.write(pa.table({"what": ["a"]}))
        step.write(pa.record_batch({"what": ["b"]}))
        step.write_rows(({"what": str(n)} for n in range(25_000)), SCHEMA)
        step.write_rows([{}], SCHEMA)
        assert step.rows == 25_003
    world.guard.finish(fence(1), batch(0, parts=1), [part.result])
    assert world.guard.read()["what"].to_pylist()[:3] == ["a", "b", "0"]
    assert len(world.guard.files()) == 1


def test_part_without_rows_has_no_file(world):
    world.guard.begin(fence(1), batch(0))
    part = world.guard.part(fence(1), batch(0), 0)
    with part:
        pass
    assert part.result.path == ""
    world.guard.finish(fence(1), batch(0), [part.result, world.write_part(fence(1), batch(0), 1)])
    assert len(world.guard.files()) == 1
    with world.guard.part(fence(1), batch(0), 0) as step:
        assert step is None


@pytest.mark.parametrize(
    "write",
    [
        lambda step: step.write(pa.table({"what": [7]})),
        lambda step: step.write(pa.table({"other": ["x"]})),
        lambda step: step.write([{"what": "x"}]),
        lambda step: step.write_rows([{"what": "x", "more": 1}], SCHEMA),
        lambda step: step.write_rows([{"what": object()}], SCHEMA),
        lambda step: step.write_rows([{"what": 7}], SCHEMA),
    ],
)
def test_rows_of_another_schema_are_refused(world, write):
    for published in ([], [batch(0)]):
        for one in published:
            world.write_batch(fence(1), one)
        world.guard.begin(fence(1), batch(1))
        part = world.guard.part(fence(1), batch(1), 0)
        with pytest.raises(ConfigError), part as step:  # noqa: PT012
            world.write(step, batch(1), 0)
            write(step)
        assert len(files(world)) == 2 * len(published)


def test_parts_of_different_schemas_are_not_published(world):
    one = batch(0)
    world.guard.begin(fence(1), one)
    results = [world.write_part(fence(1), one, 0)]
    part = world.guard.part(fence(1), one, 1)
    with part as step:
        step.write(pa.table({"what": [1]}))
    with pytest.raises(ConfigError, match="schema"):
        world.guard.finish(fence(1), one, [*results, part.result])
    assert world.guard.files() == []


def test_finish_wants_each_part_once_and_of_this_batch(world):
    results = results_of(world, batch(0))
    other = results_of(world, batch(0, "q2"))
    for wrong in (
        [],
        results[:1],
        [*results, results[0]],
        [results[0], other[1]],
        [None, None],
        "ab",
    ):
        with pytest.raises(ConfigError):
            world.guard.finish(fence(1), batch(0), wrong)
    assert world.guard.files() == []
    world.guard.finish(fence(1), batch(0), results)
    world.guard.finish(fence(1), batch(0), [None, None])


def test_file_that_is_not_as_it_was_written_is_not_published(world):
    for harm in (Path.unlink, lambda path: path.write_bytes(b"x")):
        results = results_of(world, batch(0))
        harm(world.guard._directory / results[1].path)
        with pytest.raises(StateError, match="anew"):
            world.guard.finish(fence(1), batch(0), results)
    world.write_batch(fence(1), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_each_fiftieth_manifest_holds_the_whole_fold(world):
    fill(world, FOLD_INTERVAL + 5)
    whole = [path for path in manifests(world) if "fold" in json.loads(path.read_text())]
    assert [int(path.stem) for path in whole] == [FOLD_INTERVAL]
    for path in manifests(world):
        if int(path.stem) < FOLD_INTERVAL:
            path.unlink()
    with fresh(world) as other:
        assert other.files() == world.guard.files()
        world.guard.raise_fence(fence(2))
        with pytest.raises(StaleToken):
            other.begin(fence(1), batch(FOLD_INTERVAL + 6, parts=1))


@pytest.fixture
def small_volumes(monkeypatch):
    """Write each 5th manifest with a fold, and end a volume with each 10th."""
    monkeypatch.setattr(parquet_log, "FOLD_INTERVAL", 5)
    monkeypatch.setattr(parquet_log, "VOLUME", 10)


@pytest.mark.usefixtures("small_volumes")
def test_manifest_names_only_the_files_of_its_volume(world):
    slept = fresh(world)
    fill(world, 4)
    assert len(slept.files()) == 4
    fill(world, 48, first=4)
    folds = [json.loads(path.read_text()).get("fold") for path in manifests(world)]
    # The first manifest raised the fence: 2 to 10 published a file each.
    named = [len(fold["files"]) for fold in folds if fold]
    assert named == [4, 9, 5, 10, 5, 10, 5, 10, 5, 10]
    for guard in (world.guard, slept, fresh(world)):
        for _ in range(2):
            names = [Path(path).name.split("-")[0] for path in guard.files()]
            assert names == [str(number) for number in range(52)]
    assert world.contents() == world.whole(*(batch(number, parts=1) for number in range(52)))


@pytest.mark.usefixtures("small_volumes")
def test_vacuum_keeps_volumes_and_what_they_publish(world):
    fill(world, 36)
    before = world.guard.files()
    age(*manifests(world), *files(world))
    done = world.guard.vacuum(3600)
    assert [int(path.stem) for path in manifests(world)] == [10, 20, 30, 35, 36, 37]
    assert (done.files, done.manifests) == (0, 31)
    for guard in (world.guard, fresh(world)):
        assert guard.files() == before
        assert guard.vacuum(3600).files == 0
    fill(world, 10, first=36)
    assert len(fresh(world).files()) == 46


@pytest.mark.usefixtures("small_volumes")
@pytest.mark.parametrize("harm", ["gone", "", "[]", '{"rink": "guard", "format": 1, "number": 10}'])
def test_volume_that_is_damaged_is_named_and_nothing_is_read_without_it(world, harm):
    fill(world, 25)
    path = manifests(world)[9]
    if harm == "gone":
        path.unlink()
    else:
        path.write_text(harm)
    for read in (ParquetGuard.files, ParquetGuard.read, lambda guard: guard.vacuum(0)):
        for _ in range(2):
            with pytest.raises(StateError, match="damaged") as caught:
                read(fresh(world))
            assert caught.value.key == str(path)
    assert len(files(world)) == 25
    fill(world, 1, first=25)  # a writer does not need it


def test_vacuum_removes_orphans_and_old_manifests_and_nothing_else(world):
    fill(world, FOLD_INTERVAL + 5)
    orphans = results_of(world, batch(FOLD_INTERVAL + 6, parts=1)) + results_of(
        world, batch(0, "q2", 1)
    )
    left = world.guard._directory / "manifests" / ".x.tmp"
    left.touch()
    before = world.contents()
    assert world.guard.vacuum(3600).files == 0
    assert len(manifests(world)) > FOLD_INTERVAL
    age(left, *manifests(world), *files(world))
    done = world.guard.vacuum(3600)
    assert (done.files, done.manifests) == (len(orphans), FOLD_INTERVAL - 1)
    assert not left.exists()
    assert world.contents() == before
    assert len(files(world)) == FOLD_INTERVAL + 5
    assert int(manifests(world)[0].stem) == FOLD_INTERVAL
    again = world.guard.vacuum(3600)
    assert (again.files, again.manifests) == (0, 0)
    fill(world, 1, first=FOLD_INTERVAL + 5)


def test_condemned_file_that_is_still_there_is_not_published(world, monkeypatch):
    results = results_of(world, batch(0))
    age(*files(world))
    with monkeypatch.context() as dies:
        dies.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            fresh(world).vacuum(3600)
    assert len(files(world)) == 2
    with pytest.raises(StateError, match="anew"):
        world.guard.finish(fence(1), batch(0), results)
    # The killed process may still be removing them: they stay condemned, old or not.
    for path in files(world):
        os.utime(path)
    assert fresh(world).vacuum(3600).files == 2
    world.write_batch(fence(1), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_writer_that_slept_publishes_nothing_under_a_removed_number(world, monkeypatch):
    """Its next number is free again, since vacuum removed it.

    So the link succeeds, but does not count.
    """
    mine = results_of(world, batch(0))
    sleeper = fresh(world)
    sleeper.files()
    slept = sleeper._log()._link

    def others_go_on(fold, entry):
        monkeypatch.setattr(sleeper._log(), "_link", slept)
        with fresh(world) as others:
            busy = ParquetWorld(world.guard._directory)
            busy.guard = others
            others.raise_fence(fence(1, "other"))
            for number in range(FOLD_INTERVAL + 10):
                one = batch(number, "q2", 1)
                others.begin(fence(1, "other"), one)
                others.finish(fence(1, "other"), one, [busy.write_part(fence(1, "other"), one, 0)])
            for path in manifests(world):
                if int(path.stem) < FOLD_INTERVAL:
                    path.unlink()
        slept(fold, entry)
        assert (sleeper._directory / "manifests" / f"{entry_number(fold):020d}.json").exists()

    def entry_number(fold):
        return fold.number + 1

    monkeypatch.setattr(sleeper._log(), "_link", others_go_on)
    sleeper.finish(fence(1), batch(0), mine)
    with fresh(world) as reader:
        assert len(reader.files()) == FOLD_INTERVAL + 10 + 2
    sleeper.close()


def test_who_slept_while_the_fence_was_raised_is_refused(world, monkeypatch):
    results = results_of(world, batch(0))
    log = world.guard._log()
    link = log._link

    def raised_meanwhile(fold, entry):
        monkeypatch.setattr(log, "_link", link)
        fresh(world).raise_fence(fence(2))
        link(fold, entry)

    monkeypatch.setattr(log, "_link", raised_meanwhile)
    with pytest.raises(StaleToken):
        world.guard.finish(fence(1), batch(0), results)
    assert world.guard.files() == []


@pytest.mark.parametrize(
    "text",
    [
        "", "no json", "[]", "{}", '{"rink": "guard", "format": 1, "number": 7}',
        '{"rink": "guard", "format": 2, "number": 2}',
        '{"rink": "guard", "format": 1, "number": 2, "fence": {"name": "x"}}',
        '{"rink": "guard", "format": 1, "number": 2, "fence": {"name": "x", "token": "y"}}',
        '{"rink": "guard", "format": 1, "number": 2, "batch": {"query": "q"}}', "\xff",
    ],
)  # fmt: skip
def test_damaged_manifest_is_named(world, text):
    world.guard.raise_fence(fence(1))
    path = world.guard._directory / "manifests" / f"{2:020d}.json"
    path.write_bytes(text.encode("latin-1"))
    for guard in (world.guard, fresh(world)):
        for _ in range(2):
            with pytest.raises(StateError, match="damaged") as caught:
                guard.files()
            assert caught.value.key == str(path)
    path.unlink()
    world.write_batch(fence(1), batch(0))


def test_damaged_whole_fold_is_named(world):
    fill(world, FOLD_INTERVAL)
    path = manifests(world)[FOLD_INTERVAL - 1]
    entry = json.loads(path.read_text())
    for fold in (None, {}, entry["fold"] | {"number": 3}, entry["fold"] | {"more": 1}):
        path.write_text(json.dumps(entry | {"fold": fold}))
        with pytest.raises(StateError, match="damaged"):
            fresh(world).files()


def test_gap_is_named(world):
    fill(world, 3)
    manifests(world)[1].unlink()
    with pytest.raises(StateError, match=r"0002\.json is damaged: it is missing"):
        fresh(world).files()


def test_what_is_no_manifest_is_named(world):
    world.guard.raise_fence(fence(1))
    other = world.guard._directory / "manifests" / "notes.txt"
    other.touch()
    with pytest.raises(StateError, match=r"notes\.txt"):
        world.guard.begin(fence(1), batch(0))


def test_directory_that_went_back_is_named(world, tmp_path):
    fill(world, 2)
    for path in manifests(world)[1:]:
        path.unlink()
    with pytest.raises(StateError, match="rolled back"):
        world.guard.begin(fence(1), batch(2, parts=1))


@pytest.mark.parametrize("directory", ["", None, 7, "s3://bucket/x", "hdfs://h/x", "file:///tmp"])
def test_directory_is_a_path(directory):
    with pytest.raises(ConfigError, match="directory"):
        ParquetGuard(directory)


def test_directory_that_is_not_there_is_not_made(tmp_path):
    guard = ParquetGuard(tmp_path / "typing error")
    (tmp_path / "file").touch()
    for wrong in (guard, ParquetGuard(tmp_path / "file")):
        for call in (
            lambda wrong=wrong: wrong.raise_fence(fence(1)),
            lambda wrong=wrong: wrong.begin(fence(1), batch(0)),
            lambda wrong=wrong: wrong.part(fence(1), batch(0), 0).__enter__(),
            lambda wrong=wrong: wrong.files(),
        ):
            with pytest.raises(GuardError, match="not a directory"):
                call()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_directory_that_may_not_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        with pytest.raises(GuardError, match="must be able to write") as caught:
            ParquetGuard(tmp_path).raise_fence(fence(1))
    finally:
        os.seteuid(user)
    assert caught.value.place == str(tmp_path)


def test_relative_directory_is_the_same_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guard = pickle.loads(pickle.dumps(ParquetGuard(".")))
    monkeypatch.chdir("/")
    guard.raise_fence(fence(1))
    assert (tmp_path / "manifests").is_dir()
    shutil.rmtree(tmp_path / "manifests")


def test_published_file_that_is_gone_is_named(world):
    fill(world, 1)
    [path] = files(world)
    path.unlink()
    with pytest.raises(StateError, match="backup"):
        world.guard.read()


def test_failed_part_leaves_no_file(world):
    world.guard.begin(fence(1), batch(0))
    for _ in range(2):
        part = world.guard.part(fence(1), batch(0), 0)
        with pytest.raises(ZeroDivisionError), part as step:  # noqa: PT012
            world.write(step, batch(0), 0)
            raise ZeroDivisionError
    with pytest.raises(StaleToken), world.guard.part(fence(1), batch(0), 0) as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        world.guard.raise_fence(fence(2))
    assert files(world) == []
    with pytest.raises(UsageError, match="over"):
        world.write(step, batch(0), 0)
    assert world.contents() == Counter()


# ── others at the same time ──────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("small_volumes")
def test_guard_that_outlives_its_directory_refuses_the_next_one(world):
    folder = world.guard._directory
    outlives = fresh(world)
    fill(world, 15)
    assert len(outlives.files()) == 15
    shutil.rmtree(folder)
    folder.mkdir()
    next_one = ParquetWorld(folder)
    fill(next_one, 15)
    for refused in (
        lambda: outlives.raise_fence(
            fence(2)
        ),  # as many manifests as it knew: it notices when it writes
        lambda: fill(next_one, 10, first=15) or outlives.files(),
        outlives.read,
        lambda: age(*files(next_one)) or outlives.vacuum(3600),
        lambda: outlives.begin(fence(1), batch(30)),
    ):
        with pytest.raises(StateError, match="removed and made anew") as caught:
            refused()
        assert caught.value.key == str(folder)
    assert next_one.contents() == next_one.whole(*(batch(number, parts=1) for number in range(25)))


def test_listing_that_lacks_a_manifest_and_has_a_later_one_is_no_damage(world, monkeypatch):
    reader = fresh(world)
    fill(world, 9)
    list_all = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: list_all(path)[1::2])
    for guard in (reader, fresh(world)):
        assert len(guard.files()) == 9


@pytest.mark.usefixtures("small_volumes")
def test_manifest_that_goes_while_it_is_read_is_looked_for_anew(world, monkeypatch):
    reader = fresh(world)
    fill(world, 1)
    assert len(reader.files()) == 1
    fill(world, 12, first=1)
    list_all, lists = os.listdir, []

    def listed_before(path):
        found = list_all(path)
        lists.append(found)
        if len(lists) == 1:
            age(*manifests(world))
            monkeypatch.setattr(os, "listdir", list_all)
            world.guard.vacuum(3600)
            monkeypatch.setattr(os, "listdir", listed_before)
            return [name for name in found if int(name[:20]) < 5]
        return found

    monkeypatch.setattr(os, "listdir", listed_before)
    assert len(reader.files()) == 13
    assert len(lists) > 1


@pytest.mark.usefixtures("small_volumes")
def test_two_vacuums_at_once_take_no_offence_at_each_other(world, monkeypatch):
    fill(world, 16)
    age(*manifests(world))
    stat, first, others = Path.stat, manifests(world)[0], []

    def while_it_looks(path, **how):
        if path == first and not others:
            others.append(None)
            others.append(fresh(world).vacuum(3600).manifests)
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", while_it_looks)
    mine = world.guard.vacuum(3600).manifests
    assert (mine, others[1]) == (0, 13)
    assert len(fresh(world).files()) == 16


def test_writer_that_slept_until_its_file_was_removed_writes_it_anew(world, monkeypatch):
    fill(world, 1)
    link = os.link

    def slept(source, target):
        monkeypatch.setattr(os, "link", link)
        age(source)
        fresh(world).vacuum(3600)
        link(source, target)

    monkeypatch.setattr(os, "link", slept)
    fill(world, 1, first=1)
    assert len(fresh(world).files()) == 2


def test_batch_published_before_the_fence_was_raised_is_not_refused(world, monkeypatch):
    results = results_of(world, batch(0))
    link = os.link

    def overtaken(source, target):
        monkeypatch.setattr(os, "link", link)
        link(source, target)
        fresh(world).raise_fence(fence(2))

    monkeypatch.setattr(os, "link", overtaken)
    world.guard.finish(fence(1), batch(0), results)
    assert world.contents() == world.whole(batch(0))
    with pytest.raises(StaleToken):
        world.guard.finish(fence(1), batch(0), results)
