"""Check the options of source and sink before Spark runs anything."""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Mapping
from typing import Any

import attrs

from rink.core.keys import check_name
from rink.errors import ConfigError
from rink.spark.times import milliseconds
from rink.streams import App
from rink.streams.codec import Codec, JsonCodec
from rink.streams.records.fields import is_record_class
from rink.streams.store import entry_ids
from rink.streams.store.keys import Names
from rink.streams.store.values import PartitionBounds
from rink.streams.stream import Stream, partition_bounds

_COMMON = {
    "app": "the app as its workers load it, MODULE:ATTR, importable on executors too",
    "appName": "instead of app: the app's name. Then give redis, and record if you want columns",
    "stream": "the stream's name, as in `load(NAME)`",
    "redis": "a URL, or MODULE:FUNCTION that makes a blocking client of redis-py's",
    "record": "the record class, MODULE:CLASS, if there is no app; `raw`: bytes, even with an app",
    "fencingToken": "the token of the query's role: lower tokens are refused from then on",
    "redisTimeout": "seconds for which a call is repeated while Redis does not answer (30)",
}
_SOURCE = {
    "name": "instead of group: the role's name, as `rink.spark.fence(role)` gives it",
    "group": "the name of a streaming query in the stream; each query has its own",
    "startingOffsets": 'earliest (default), latest, or JSON: {"0": id, ...}: after these ids',
    "startingTimestamp": (
        "instead of startingOffsets: milliseconds since 1970, or a time as Spark reads it"
    ),
    "endingOffsets": "for a batch: latest (default), or JSON as above: up to these ids",
    "endingTimestamp": "instead of endingOffsets: up to before this time",
    "timeZone": "the zone of times without one, such as Europe/Berlin",
    "maxOffsetsPerTrigger": "the most rows in a batch of a query",
    "failOnDataLoss": "true (default): it is an error if events are gone before they were read",
    "metadata": "true (default): the columns _partition, _id and _timestamp",
}
_SINK = {
    "name": "the sink's name; each query that writes to the stream has its own",
    "writeId": "for a batch: written once, even if jobs with this id run again within 30 days",
    "stagingTtl": "seconds until staged records of a lost task are removed (86,400)",
    "fullTimeout": "the longest wait for room in a full partition, in seconds (10)",
    "partitionSize": "without an app: how many events a partition holds (50,000)",
    "trim": "without an app: committed (default) or oldest",
}
OF_SOURCE = {**_COMMON, **_SOURCE}
ALL = {**OF_SOURCE, **_SINK}
"""The meaning of each option, by its name."""
_SPARKS = {"checkpointlocation", "queryname", "outputmode"}


@attrs.frozen
class StreamPlace:
    """Locate one stream by its app and its Redis. Executors get a copy.

    Attributes:
        app: MODULE:ATTR, or "".
        app_name: the app's name.
        redis: a URL, or MODULE:FUNCTION.
        record: MODULE:CLASS, `raw`, or "" for the app's record class.
        patience: seconds for which a call is repeated while Redis does not answer.
    """

    app: str
    app_name: str
    stream: str
    redis: str = attrs.field(repr=False)
    record: str
    patience: float

    @property
    def names(self) -> Names:
        """Return the stream's keys."""
        return Names.of(self.app_name, self.stream)

    def __str__(self) -> str:
        return f"stream {self.stream!r} of app {self.app_name!r}"

    def declared(self) -> Stream[Any] | None:
        """Return the stream that the app declares; None without an app."""
        return _stream_of(_app_of(self.app), self.app, self.stream) if self.app else None

    def record_class(self) -> type[Any] | None:
        """Return the class of the records; None if rows are bytes."""
        if self.record == "raw":
            return None
        if self.record:
            return _record_of(self.record)
        declared = self.declared()
        return declared.record if declared else None

    def codec(self) -> Codec[Any]:
        """Return the codec of the records in Redis."""
        if not self.record and (declared := self.declared()) is not None:
            return declared.codec
        return JsonCodec(_record_of(self.record))

    @classmethod
    def of(cls, options: Options) -> StreamPlace:
        """Read the options that name a stream."""
        app, redis = options.text("app"), options.text("redis")
        if bool(app) == bool(options.text("appName")):
            raise ConfigError(
                "give one of the options app (MODULE:ATTR, as for `rink worker`) and appName "
                "(with redis)"
            )
        name = options.text("appName")
        if app:
            loaded_app = _app_of(app)
            name, redis = loaded_app.name, redis or loaded_app.redis_url or ""
            _stream_of(loaded_app, app, options.needed("stream"))
        if not redis:
            raise ConfigError(
                "the option redis is missing: a URL, or MODULE:FUNCTION that makes a blocking "
                "client of redis-py's"
            )
        place = cls(
            app=app,
            app_name=check_name("app", name),
            stream=check_name("stream", options.needed("stream")),
            redis=redis,
            record=options.text("record"),
            patience=options.seconds("redisTimeout", 30.0),
        )
        place.record_class()
        return place


class Options:
    """Hold the options of a query. The case of their names does not matter."""

    def __init__(self, options: Mapping[str, str], *, of_sink: bool) -> None:
        self._given = _with_stream(options)
        known = _SINK if of_sink else _SOURCE
        check_names(self._given, "a sink" if of_sink else "a source", {**_COMMON, **known})

    def text(self, name: str, otherwise: str = "") -> str:
        """Return the text of an option, or a default."""
        return self._given.get(name.lower(), otherwise)

    def needed(self, name: str) -> str:
        """Return the text of a required option."""
        if value := self.text(name):
            return value
        raise ConfigError(f"the option {name} is missing: {ALL[name]}")

    def flag(self, name: str, otherwise: bool) -> bool:
        """Return the value of an option that is true or false."""
        word = self.text(name, str(otherwise)).lower()
        if word not in ("true", "false"):
            raise ConfigError(f"the option {name} is true or false, not {word!r}")
        return word == "true"

    def seconds(self, name: str, otherwise: float) -> float:
        """Return the value of an option in seconds, above 0."""
        text = self.text(name, str(otherwise))
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise ConfigError(f"the option {name} is a number of seconds above 0, not {text!r}")
        return value

    def count(self, name: str) -> int | None:
        """Return the whole number of an option, above 0, or None."""
        text = self.text(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ConfigError(f"the option {name} is a whole number above 0, not {text!r}")
        return int(text)

    def token(self) -> int:
        """Return the fencing token; 0 if the query has none."""
        return self.count("fencingToken") or 0

    def bounds(self, declared: Stream[Any] | None) -> PartitionBounds:
        """Return the bounds of a partition, of the app or else the options."""
        if declared is not None:
            return partition_bounds(declared)
        trim = self.text("trim", "committed")
        if trim not in ("committed", "oldest"):
            raise ConfigError(f"the option trim is committed or oldest, not {trim!r}")
        return PartitionBounds(self.count("partitionSize") or 50_000, loses=trim == "oldest")

    def edge(self, offsets: str, timestamp: str, otherwise: str) -> str | dict[int, str]:
        """Return where to begin or end reading, by an option of ids or a time.

        The result is `earliest` or `latest`, one id for all partitions, or an id or word for each
        partition.
        """
        if (when := self.text(timestamp)) and self.text(offsets):
            raise ConfigError(f"give one of the options {offsets} and {timestamp}")
        if when:
            at = milliseconds(timestamp, when, self.text("timeZone"))
            return f"({at}-0" if at else entry_ids.NONE  # in Redis' notation: all ids below
        words = dict.fromkeys((otherwise, "latest"))
        text = self.text(offsets, otherwise)
        if text in words:
            return text
        try:
            document = json.loads(text)
            edges = {int(number): str(at) for number, at in document.items()}
        except (ValueError, AttributeError):
            edges = {}
        if not edges or not all(at in words or entry_ids.is_id(at) for at in edges.values()):
            raise ConfigError(
                f"the option {offsets} is {', '.join(words)} or JSON such as "
                f'{{"0": "1700000000000-0", "1": "latest"}}, '
                f"for each partition an id or one of these words, not {text!r}"
            )
        # Scripts compare ids part by part as text, so each id needs one notation.
        return {
            n: at if at in words else "{}-{}".format(*entry_ids.order(at))
            for n, at in edges.items()
        }


def check_names(options: Mapping[str, str], what: str, known: Mapping[str, str]) -> None:
    """Raise ConfigError for unknown options, and name the nearest known one."""
    lower = {name.lower(): name for name in known}
    wrong = sorted(options.keys() - lower.keys() - _SPARKS)
    if not wrong:
        return
    hints = []
    for name in wrong:
        near = difflib.get_close_matches(name, lower, n=1)
        hints.append(name + (f" (did you mean {lower[near[0]]}?)" if near else ""))
    raise ConfigError(
        f'format("rink") as {what} has no option {", ".join(hints)}. It has '
        + "; ".join(f"{name}: {meaning}" for name, meaning in known.items())
    )


def _with_stream(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by names in lower case, with the path as the stream."""
    by_name = {str(name).lower(): str(value) for name, value in options.items()}
    for name, meaning in {**ALL, "path": "the stream's name"}.items():
        if not by_name.get(name.lower(), "given").strip():
            raise ConfigError(
                f"the option {name} is empty: {meaning}. Give it a value; an optional one can be "
                "left out"
            )
    if "paths" in by_name:
        raise ConfigError(
            f"load() reads one stream, and not {by_name['paths']}: read each by its own load(), "
            "and union them"
        )
    path = by_name.pop("path", "")
    if path and by_name.setdefault("stream", path) != path:
        raise ConfigError(
            f"the option stream is {by_name['stream']!r}, and load, save or start names {path!r}: "
            "name one stream"
        )
    return by_name


def named(text: str, what: str) -> Any:
    """Import the object that MODULE:ATTR names, or raise ConfigError."""
    module, _, path = text.partition(":")
    if not module or not path:
        raise ConfigError(f"the option {what} is MODULE:ATTR, such as shop:app, not {text!r}")
    try:
        target: Any = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the option {what}={text!r} cannot be loaded: {error}. Drivers and executors must be "
            "able to import it: install it there, or send it as one .py file "
            "(spark.submit.pyFiles; sources see no .zip)"
        ) from error
    return target


def _app_of(text: str) -> App:
    app = named(text, "app")
    if not isinstance(app, App):
        raise ConfigError(
            f"the option app={text!r} is {app!r}, not a rink.streams.App: name the app itself"
        )
    return app


def _stream_of(app: App, text: str, name: str) -> Stream[Any]:
    if name not in app.streams:
        raise ConfigError(
            f"app {app.name!r} ({text}) has no stream {name!r}; it has {sorted(app.streams)}"
        )
    if not (stream := app.streams[name]).is_trimmed:
        raise ConfigError(
            f"stream {name!r} holds dead letters: read them with a processor, or `rink streams "
            "dead`"
        )
    return stream


def _record_of(text: str) -> type[Any]:
    record: type[Any] = named(text, "record")
    if not is_record_class(record):
        raise ConfigError(
            f"the option record={text!r} is not a record class: name an attrs class or a dataclass"
        )
    return record
