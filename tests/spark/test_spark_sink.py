"""Test what the sink does without Spark and Redis."""

import pytest

from rink.errors import ConfigError
from rink.spark import FencedStream

WHERE = {"appName": "shop", "stream": "totals", "redis": "redis://127.0.0.1:1"}


@pytest.mark.parametrize(
    "other",
    [
        {"name": "totals"}, {"fencingToken": "5"}, {"writeId": "x"}, {"fullTimeout": "1"},
        {"NAME": "t"},
    ],
)  # fmt: skip
def test_fenced_stream_takes_no_option_but_those_that_say_where_it_is(other):
    with pytest.raises(ConfigError, match=rf", not {next(iter(other))}: .*Name and token come"):
        FencedStream(**WHERE, **other)


def test_fenced_stream_knows_options_in_any_case_as_spark_does():
    given = {name.lower(): value for name, value in WHERE.items()}
    assert "'totals'" in repr(FencedStream(**given, redistimeout="1"))


def test_fenced_stream_that_cannot_be_says_why():
    with pytest.raises(ConfigError, match="stream is missing"):
        FencedStream(appName="shop", redis="redis://127.0.0.1:1")
