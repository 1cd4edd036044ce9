"""Accept and refuse declarations of an app."""

import asyncio
import dataclasses
import functools
import inspect
from datetime import timedelta

import msgspec
import pydantic
import pytest

from rink import Session
from rink.errors import ConfigError, UsageError
from rink.streams import App, JsonCodec, Policy, Record, RecordError, Worker, partition_of
from rink.streams.store.keys import Names


class Order(Record):
    customer: str | None = None
    number: int = 0


@pytest.fixture
def app():
    return App("shop")


@pytest.fixture
def orders(app):
    return app.stream("orders", record=Order, partition_by="customer")


def test_app_has_the_ttl_of_a_session_by_default(app):
    assert app.ttl == inspect.signature(Session).parameters["ttl"].default == 20.0


def test_app_passes_on_each_other_setting_of_a_session():
    settings = inspect.signature(Session).parameters.keys() - {"self", "endpoints", "ttl"}
    assert App("shop", session=dict.fromkeys(settings)).session.keys() == settings


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"session": {"foo": 3}}, "no setting 'foo': it may have ca, cert, "),
        ({"session": {"ttl": 3}}, "`ttl` and `etcd` are settings of the app"),
        ({"redis": object()}, "neither a URL nor a function that makes a client"),
    ],
)
def test_app_that_cannot_be_is_refused(settings, hint):
    with pytest.raises(ConfigError, match=hint):
        App("shop", **settings)


@pytest.mark.parametrize("given", [lambda events: None, "orders"])
def test_processor_without_its_stream_is_refused(app, given):
    with pytest.raises(ConfigError, match=r"write `@app.processor\(stream\)`"):
        app.processor(given)


def test_defaults_suit_workers(app, orders):
    @app.processor(orders)
    async def bill(events): ...

    declared = app.processors["bill"]
    assert (declared.rebalance_delay, declared.initial_delay, declared.grace) == (10, 2, 8)
    assert (orders.partition_count, orders.partition_size) == (16, 50_000)
    assert (declared.group, declared.scheme) == ("shop/bill", "balanced:16")


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_count": 0},
        {"partition_count": 10_001},
        {"partition_size": 0},
        {"trim": "everything"},
        {"partition_by": ""},
        {"partition_by": 3},
        {"partition_by": "custommer"},
        {"partition_count": 1.5},
        {"partition_count": "16"},
        {"partition_count": True},
        {"partition_size": 1e3},
    ],
)
def test_stream_that_cannot_be_is_refused(app, settings):
    with pytest.raises(ConfigError):
        app.stream("orders", **({"record": Order, "partition_by": "customer"} | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "yesterday"},
        {"on_error": "ignore"},
        {"max_attempts": 0},
        {"max_crashes": 1},
        {"max_uncommitted": 0},
        {"max_uncommitted": 2000},
        {"max_uncommitted": 10.0},
        {"prefetch": "1000"},
        {"max_attempts": 2.5},
        {"max_crashes": "3"},
        {"backoff": 1},
        {"backoff": (1,)},
        {"backoff": (-1, 1)},
        {"backoff": (2, 1)},
        {"backoff": (0.1, "30")},
        {"backoff": "12"},
        {"middleware": [None]},
        {"grace": -1},
        {"rebalance_delay": "soon"},
        {"name": ""},
    ],
)
def test_processor_that_cannot_be_is_refused(app, orders, settings):
    with pytest.raises(ConfigError):

        @app.processor(orders, **settings)
        async def bill(events): ...


class Keyed(Record):
    customer: str

    @property
    def initial(self):
        return self.customer[:1]


def test_property_is_a_key_too(app):
    by_initial = app.stream("orders", record=Keyed, partition_by="initial")
    assert by_initial.partition_of(Keyed(customer="ann")) == partition_of("a", 16)


async def endless(events):
    async for event in events:
        yield event


def endless_in_a_thread(events):
    yield from events


class Shop:
    async def bill(self, events): ...


async def of_nothing(): ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (endless, "is a generator"),
        (endless_in_a_thread, "is a generator"),
        (Shop.bill, r"takes \(self, events\).*missing a required argument"),
        (of_nothing, "too many positional arguments"),
        (None, "is not callable"),
    ],
)
def test_function_that_could_never_process_anything_is_refused(app, orders, function, told):
    with pytest.raises(ConfigError, match=told):
        app.processor(orders, name="bill")(function)
    app.processor(orders, name="bill")(Shop().bill)  # a bound method takes the right arguments


class Billing:
    async def __call__(self, events): ...


class Endless:
    def __call__(self, events):
        yield from events


def given(function):
    """Return a decorator that passes an extra argument to the function."""

    @functools.wraps(function)
    async def wrapper(*called):
        await function(*called, "a database")

    return wrapper


@given
async def with_more(events, database): ...


@given
async def with_more_alone(database): ...


def test_what_can_be_called_is_a_processor_however_it_was_made(app, orders):
    partial = functools.partial(with_more.__wrapped__, database=1)
    for number, function in enumerate((Billing(), partial, with_more)):
        app.processor(orders, name=f"p{number}")(function)
        assert app.processors[f"p{number}"].is_async
    app.task(every=1, name="tidy")(with_more_alone)
    for function in (Endless(), functools.partial(endless)):
        with pytest.raises(ConfigError, match="is a generator"):
            app.processor(orders, name="no")(function)


class Base(Record):
    pass


class OfItsOwnMaking(Record):
    customer: str

    def __attrs_post_init__(self):
        object.__setattr__(self, "shard", self.customer[:1])


def test_key_that_only_instances_have_is_not_refused(app):
    made = app.stream("made", record=OfItsOwnMaking, partition_by="shard")
    assert made.partition_of(OfItsOwnMaking(customer="ann")) == partition_of("a", 16)
    missing = app.stream("missing", record=OfItsOwnMaking, partition_by="nobody")
    with pytest.raises(RecordError, match="nobody"):
        missing.partition_of(OfItsOwnMaking(customer="ann"))
    app.stream("bases", record=Base, partition_by="customer", codec=JsonCodec(Order))
    with pytest.raises(ConfigError, match="no field of Base"):
        app.stream("base", record=Base, partition_by="customer")


@dataclasses.dataclass(frozen=True)
class Parcel:
    weight: int
    owner: str = "me"

    @property
    def shard(self):
        return self.owner[:1]

    def town(self):
        return "Ulm"


class Cargo(msgspec.Struct):
    weight: int


class Model(pydantic.BaseModel):
    weight: int


class Anything:
    """A codec of a user's own."""

    def __init__(self, error=None):
        self.error = error

    def encode(self, record):
        raise self.error

    def decode(self, data):
        raise self.error


@pytest.mark.parametrize(
    ("record", "codec"), [(Parcel, None), (Cargo, Anything()), (Model, Anything())]
)
def test_stream_partition_by_no_field_of_any_class_refused(app, record, codec):
    with pytest.raises(ConfigError, match=rf"'wieght' is no field of {record.__name__}, .*weight"):
        app.stream("a", record=record, partition_by="wieght", codec=codec)
    app.stream("a", record=record, partition_by="weight", codec=codec)


def test_stream_partition_by_property_accepted_and_method_refused(app):
    """Refuse a method as a key.

    The text of a bound method has an address, so each process would take another partition.
    """
    parcels = app.stream("parcels", record=Parcel, partition_by="shard")
    assert parcels.partition_of(Parcel(1)) == partition_of("m", 16)
    with pytest.raises(ConfigError, match=r"'town' is a method of Parcel.*lambda record"):
        app.stream("towns", record=Parcel, partition_by="town")


def test_stream_codec_raises_anything_reported_as_record_error(app):
    codec = Anything(KeyError("weight"))
    cargo = app.stream("cargo", record=Cargo, partition_by="weight", codec=codec)
    with pytest.raises(RecordError, match=r"stream 'cargo'.* raised KeyError: 'weight'"):
        cargo.encode(Cargo(1))
    with pytest.raises(RecordError, match=r"stream 'cargo'.* raised KeyError: 'weight'"):
        cargo.record_of(b"x")


def test_where_no_pause_is_wanted_there_is_hardly_any(app):
    assert Policy(backoff=(0, 0)).pauses().next() <= 0.002
    pauses = Policy(backoff=(0, 30)).pauses()
    assert max(pauses.next() for _ in range(40)) > 1


def test_task_that_takes_something_or_yields_is_refused(app):
    with pytest.raises(ConfigError, match=r"takes \(self, events\)"):
        app.task(every=1, name="tidy")(Shop.bill)
    with pytest.raises(ConfigError, match="is a generator"):
        app.task(every=1, name="tidy")(endless_in_a_thread)


def test_name_is_declared_once(app, orders):
    @app.processor(orders)
    async def bill(events): ...

    with pytest.raises(ConfigError, match="'bill' already"):
        app.processor(orders, name="bill")(bill)
    with pytest.raises(ConfigError, match="'orders' already"):
        app.stream("orders", record=Order, partition_by="customer")
    with pytest.raises(ConfigError, match="of another app"):
        App("other").processor(orders)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"every": 1, "cron": "* * * * *"},
        {"every": 0},
        {"every": -1},
        {"cron": "at noon"},
        {"at_start": False},
        {"at_start": True, "every": 1},
        {"at_start": True, "cron": "* * * * *"},
    ],
)
def test_task_that_cannot_be_is_refused(app, settings):
    with pytest.raises(ConfigError):

        @app.task(**settings)
        async def tidy(): ...


def test_task_is_declared_by_seconds_or_by_cron(app):
    @app.task(every=timedelta(minutes=2))
    def tidy(): ...

    @app.task(cron="0 4 * * *", on_leader=True, name="nightly")
    async def other(): ...

    assert app.tasks["tidy"].every == 120
    assert app.tasks["nightly"].on_leader


def test_worker_of_nothing_is_refused(app):
    with pytest.raises(ConfigError, match="neither processors nor tasks"):
        Worker(app)
    with pytest.raises(ConfigError, match="no processor 'bill'"):
        Worker(app, ["bill"])


@pytest.mark.parametrize("customer", [None, ""])
def test_record_without_a_key_is_refused(orders, customer):
    with pytest.raises(RecordError, match="no partition key"):
        orders.partition_of(Order(customer=customer))


def test_key_that_cannot_be_computed_is_refused(app):
    keyed = app.stream("keyed", record=Order, partition_by=lambda order: order.customer.upper())
    with pytest.raises(RecordError, match="gave no partition key"):
        keyed.partition_of(Order())


def test_partition_of_a_key_never_changes():
    """Keep the hash: events lie in users' Redis by it."""
    assert [partition_of(key, 16) for key in ("ann", "N14228", "UA", "1", "日本語")] == [
        11, 7, 12, 2, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["BTC/ETH", "../x", "a}x", "a{x}", "a:at:b", "ünï", " "])
def test_no_name_reaches_into_anothers_keys(name):
    names = Names.of(name, name).partition(3)
    inner = names.stream.removeprefix("rink:")
    assert inner.count("{") == inner.count("}") == 1
    assert inner.startswith("{")
    assert inner.endswith("/3}")
    assert names.at(name).removeprefix(names.stream).count(":") == 2


def test_policy_tells_when_crashes_are_too_many():
    assert [Policy(max_crashes=3).gives_up(ends) for ends in (0, 1, 2, 3)] == [
        False,
        False,
        True,
        True,
    ]
    assert [Policy(max_crashes=2).gives_up(ends) for ends in (0, 1, 2)] == [False, True, True]


def test_blocking_call_on_the_loop_that_is_to_carry_it_out_is_refused():
    app = App("shop")

    async def main():
        return app.connections.run_blocking(asyncio.sleep(0))

    try:
        with pytest.raises(UsageError, match="would wait for itself"):
            app.connections.run_blocking(main())
    finally:  # a script's runs to the end of the process; other tests count threads
        ours = app.connections._thread
        ours._loop.call_soon_threadsafe(ours._loop.stop)
        ours._thread.join(10)
        ours._loop.close()


def test_key_that_is_no_text_is_an_error_of_its_record():
    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by=lambda _: "\ud800")
    with pytest.raises(RecordError, match="is no text"):
        orders.partition_of(Order(number=1, customer="a"))
