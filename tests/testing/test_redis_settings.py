"""Test the settings of a test's Redis, as far as they need no server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rink.errors import ConfigError
from rink.testing import TlsFiles, local_redis, redis_cluster, redis_pair
from rink.testing.redis_server.start import RedisSettings, configuration, find_redis, quoted

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_given_redis(monkeypatch):
    monkeypatch.delenv("RINK_TEST_REDIS", raising=False)


def test_configuration_has_the_settings_and_listens_on_loopback():
    settings = RedisSettings(
        password='a "b"', acl=("worker on >x ~* +@all",), maxmemory="1gb", appendfsync="no"
    )
    assert configuration(1234, Path("/data here"), settings) == [
        "bind 127.0.0.1",
        "port 1234",
        'dir "/data here"',
        "daemonize no",
        "appendonly yes",
        "appendfsync no",
        'save ""',
        'requirepass "a \\"b\\""',
        "maxmemory 1gb",
        "user worker on >x ~* +@all",
    ]


def test_without_an_append_only_file_there_are_snapshots():
    lines = configuration(1, Path("/data"), RedisSettings(appendonly=False))
    assert "appendonly no" in lines
    assert 'save ""' not in lines


@pytest.mark.parametrize("asked", [True, False])
def test_with_tls_there_is_no_plain_port(asked):
    files = TlsFiles(Path("/ca"), Path("/cert"), Path("/key"), client_cert_auth=asked)
    lines = configuration(1234, Path("/data"), RedisSettings(tls=files))
    assert {"port 0", "tls-port 1234", 'tls-ca-cert-file "/ca"'} < set(lines)
    assert f"tls-auth-clients {'yes' if asked else 'no'}" in lines


def test_quoted_value_is_one_line():
    assert quoted('a\\b"c\nd') == '"a\\\\b\\"c\\nd"'


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"appendfsync": "sometimes"}, "write .always., .everysec. or .no."),
        ({"acl": ("worker",)}, "acl has 'worker', which is not a user"),
        ({"acl": ("worker on\nuser other on",)}, "is not a user"),
        ({"acl": "worker on"}, "is a string"),
    ],
)
def test_invalid_setting_is_refused_before_a_server_starts(settings, match):
    for make in (local_redis, redis_cluster, redis_pair):
        with pytest.raises(ConfigError, match=match), make(**settings):
            pass


def test_redis_server_is_the_one_on_the_path(monkeypatch, tmp_path):
    binary = tmp_path / "redis-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis() == binary


@pytest.mark.parametrize("make", [local_redis, redis_cluster, redis_pair])
def test_without_a_server_to_start_the_error_names_the_remedies(monkeypatch, make):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"apt-get install redis-server.*RINK_TEST_REDIS"), make():
        pass


def test_invalid_given_url_is_refused(monkeypatch):
    monkeypatch.setenv("RINK_TEST_REDIS", "there:6379")
    with (
        pytest.raises(ConfigError, match="there:6379 is not the URL of a Redis server"),
        local_redis(),
    ):
        pass


def test_system_script_without_root_names_the_missing_packages(tmp_path):
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    script = [shutil.which("bash"), ROOT / ".ci" / "system"]
    done = subprocess.run(
        script, check=False, env={"PATH": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0  # tests without Redis still run
    assert "apt-get install redis-server openjdk-17-jre-headless" in done.stderr
    assert "RINK_TEST_REDIS" in done.stderr
    given = {"PATH": str(tmp_path), "RINK_TEST_REDIS": "redis://there"}
    done = subprocess.run(script, check=False, env=given, stderr=subprocess.PIPE, text=True)
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
