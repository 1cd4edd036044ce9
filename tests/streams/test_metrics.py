"""Show metrics of a worker's own partitions only."""

from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.store.keys import Names
from rink.streams.store.values import CommitStep, PartitionBounds, PartitionPlace


def place(number):
    return PartitionPlace(
        "legs", number, Names.of("app", "legs").partition(number), "note", PartitionBounds(100)
    )


def shown(metrics):
    """Return the values by name and partition, without buckets and times."""
    return {
        (one.name.removeprefix("rink_streams_"), one.labels.get("partition", "")): one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if not one.name.endswith(("_bucket", "_created", "_sum"))
    }


def commit(metrics, number, processed, dead=0):
    step = CommitStep(
        token=1, epoch="0", expected="0-0", new="1-0", ceiling="",
        processed=processed, dead=dead, letters=(), outputs=(),
    )  # fmt: skip
    metrics.committed(place(number), step, 0.01)


def test_metrics_show_a_partition_from_its_first_grant_on():
    metrics = WorkerMetrics("app")
    assert shown(metrics) == {}
    metrics.owned(place(3), True)
    assert shown(metrics) == {("owned", "3"): 1.0}
    metrics.owned(place(3), False)
    assert shown(metrics) == {("owned", "3"): 0.0, ("lag", "3"): 0.0}


def test_counters_are_shown_before_there_is_anything_to_count():
    metrics = WorkerMetrics("app")
    metrics.show(place(1))
    assert shown(metrics) == {
        ("processed_total", "1"): 0.0,
        ("dead_total", "1"): 0.0,
        ("retried_total", "1"): 0.0,
        ("transient_total", "1"): 0.0,
        ("timeouts_total", "1"): 0.0,
    }


def test_paused_is_shown_until_the_partition_goes():
    metrics = WorkerMetrics("app")
    metrics.owned(place(1), True)
    metrics.paused(place(1), True)
    assert shown(metrics)["paused", "1"] == 1.0
    metrics.owned(place(1), False)
    assert shown(metrics)["paused", "1"] == 0.0


def test_counts_are_of_each_partition_and_times_of_the_processor():
    metrics = WorkerMetrics("app")
    commit(metrics, 1, 5)
    commit(metrics, 1, 2, dead=1)
    commit(metrics, 2, 1)
    metrics.retried(place(2))
    assert shown(metrics) == {
        ("processed_total", "1"): 7.0,
        ("processed_total", "2"): 1.0,
        ("dead_total", "1"): 1.0,
        ("retried_total", "2"): 1.0,
        ("commit_seconds_count", ""): 3.0,
    }
