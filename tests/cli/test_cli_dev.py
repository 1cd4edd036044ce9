from __future__ import annotations

import contextlib
import json
import os
import socket

import pytest

import rink.testing
from rink.errors import EtcdUnavailable
from rink.pip_distribution import install_command
from rink.testing.etcd_server import start


@pytest.fixture
def server(monkeypatch):
    """Replace `local_etcd`: note its arguments, and end at the first check."""

    class Server:
        asked = None
        stopped = False
        error = KeyboardInterrupt()

        @contextlib.contextmanager
        def __call__(self, **asked):
            self.asked = {**asked, "given": os.environ.get("RINK_TEST_ETCD")}
            yield self

        @property
        def is_running(self):
            if isinstance(self.error, BaseException):
                raise self.error
            return False

        def log_tail(self):
            return "panic: disk full"

        def stop(self):
            self.stopped = True

    server = Server()
    monkeypatch.setattr(rink.testing, "local_etcd", server)
    monkeypatch.setattr("rink.cli.dev.version_of", lambda _: "3.5.1")
    monkeypatch.setattr("rink.cli.dev.LOOK_INTERVAL_S", 0.0)
    return server


@pytest.fixture
def taken():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


def test_it_says_where_it_runs_what_to_copy_and_what_it_is_for(server, run):
    result = run("dev", "--port", "0")
    assert result.exit_code == 0
    (copied,) = [line for line in result.stdout.splitlines() if line.startswith("    export ")]
    url = copied.removeprefix("    export RINK_ETCD=")
    assert f"etcd 3.5.1 runs at {url}," in result.stdout
    assert "for development only" in result.stdout
    assert "\netcd 3.5.1 has known faults: in production use 3.5.23 or later.\n" in result.stdout
    assert "--name=rink-dev" in server.asked["extra_args"]
    assert f"--listen-client-urls={url}" in server.asked["extra_args"]
    assert server.stopped


def test_data_is_kept_and_synced_only_where_a_folder_is_given(server, run, tmp_path):
    assert "--data-dir keeps it" in run("dev", "--port", "0").stdout
    assert (server.asked["data_dir"], server.asked["fsync"]) == (None, False)
    assert f"stays in {tmp_path}" in run("dev", "--port", "0", "--data-dir", str(tmp_path)).stdout
    assert (server.asked["data_dir"], server.asked["fsync"]) == (tmp_path, True)


def test_json_is_one_line_with_all_that_a_program_needs_to_know(server, run, tmp_path):
    result = run("dev", "--port", "0", "--json")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    said = json.loads(result.stdout)
    assert f"--listen-client-urls={said['endpoint']}" in server.asked["extra_args"]
    assert said == {
        "endpoint": said["endpoint"],
        "version": "3.5.1",
        "fixed_in": "3.5.23",
        "data_dir": None,
    }
    kept = run("dev", "--port", "0", "--json", "--data-dir", str(tmp_path))
    assert json.loads(kept.stdout)["data_dir"] == str(tmp_path)
    assert server.stopped


def test_dev_json_of_an_etcd_without_known_faults_says_so(server, run, monkeypatch):
    monkeypatch.setattr("rink.cli.dev.version_of", lambda _: "3.5.23")
    said = json.loads(run("dev", "--port", "0", "--json").stdout)
    assert (said["version"], said["fixed_in"]) == ("3.5.23", None)


def test_server_given_to_the_tests_is_not_taken_for_our_own(server, run, monkeypatch):
    monkeypatch.setenv("RINK_TEST_ETCD", "http://127.0.0.1:1")
    assert run("dev", "--port", "0").exit_code == 0
    assert server.asked["given"] is None


def test_port_asked_for_that_is_taken_is_an_error(server, run, taken):
    result = run("dev", "--port", str(taken))
    assert result.exit_code == 1
    assert result.stderr == (
        f"rink: port {taken} of 127.0.0.1 is taken; --port 0 takes a free one\n"
    )
    assert server.asked is None


def test_where_the_usual_port_is_taken_another_one_is_chosen(server, run, taken, monkeypatch):
    monkeypatch.setattr("rink.cli.dev.PORT", taken)
    result = run("dev")
    assert result.exit_code == 0
    assert f":{taken}" not in result.stdout
    assert result.stdout.startswith(
        f"Port {taken} is taken, so etcd listens at another port: use the URL below in the "
        "examples.\n"
    )


def test_where_it_ends_by_itself_its_last_words_are_shown(server, run):
    server.error = None
    result = run("dev", "--port", "0")
    assert result.exit_code == 1
    assert "rink: etcd has ended by itself" in result.stderr
    assert "panic: disk full" in result.stderr


@pytest.mark.parametrize("error", [EtcdUnavailable("not healthy"), PermissionError(13, "no", "/x")])
def test_what_keeps_it_from_starting_is_said(run, monkeypatch, error):
    def local_etcd(**_):
        raise error

    monkeypatch.setattr(rink.testing, "local_etcd", local_etcd)
    result = run("dev", "--port", "0")
    assert result.exit_code == 1
    assert result.stderr in {"rink: not healthy\n", "rink: /x: no\n"}


def fails(*_, **__):
    raise OSError("no such socket")


@pytest.mark.parametrize("has_extra", [True, False])
def test_dev_without_an_etcd_names_the_one_command_that_helps(run, monkeypatch, has_extra):
    """The extra may bring containers, but `rink dev` does not use Docker."""
    monkeypatch.setattr(start, "find_etcd", lambda: None)
    monkeypatch.setattr(start.importlib.util, "find_spec", lambda _: has_extra or None)
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", fails)
    result = run("dev", "--port", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"rink: there is no `etcd` on the PATH: install it with `{install_command('testing')}`\n"
    )
