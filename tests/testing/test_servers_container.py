"""Test servers in containers with a fake Docker that records its calls."""

from __future__ import annotations

import signal

import pytest
from testcontainers.core import container as testcontainers_container

from rink.errors import ConfigError
from rink.testing.etcd_server import start
from rink.testing.etcd_server.container import Containers
from rink.testing.etcd_server.start import EtcdSettings

SETTINGS = EtcdSettings(
    data_dir=None, tls=None, root_password=None, fsync=True, heartbeat_ms=1, election_ms=9,
    extra_args=(), deadline=1.0,
)  # fmt: skip


class FakeContainer:
    """A fake container that refuses calls as Docker does in its state."""

    made: list[FakeContainer]

    def __init__(self, image, **settings):
        self.image = image
        self.settings = settings
        self.calls = []
        self.status = "created"
        self.real_status = "created"
        self.made.append(self)

    def with_command(self, arguments):
        self.settings["command"] = arguments
        return self

    def start(self):
        assert self.real_status in {"created", "exited"}
        self.real_status = "running"
        self.calls.append("start")
        return self

    def get_wrapped_container(self):
        return self

    def reload(self):
        self.status = self.real_status

    def pause(self):
        assert self.real_status == "running"
        self.real_status = "paused"
        self.calls.append("pause")

    def unpause(self):
        assert self.real_status == "paused"
        self.real_status = "running"
        self.calls.append("unpause")

    def kill(self, signal):
        assert self.real_status == "running"
        self.real_status = "exited"
        self.calls.append(signal)

    def get_logs(self):
        return b"out\n", b"err\n"

    def stop(self):
        self.calls.append("removed")
        self.real_status = "exited"
        raise OSError("Docker has gone")


@pytest.fixture
def docker(monkeypatch):
    monkeypatch.setattr(testcontainers_container, "DockerContainer", FakeContainer)
    FakeContainer.made = []
    return FakeContainer


def test_container_has_the_node_s_arguments_folder_and_network(docker, tmp_path):
    owner = Containers("some/etcd", {tmp_path / "tls"}, [tmp_path / "doomed"])
    (tmp_path / "doomed").mkdir()
    process = owner.process(["--name=n0"], tmp_path / "n0" / "etcd.log")
    assert process.log() == ""
    assert not process.is_running()
    process.signal(signal.SIGKILL)
    process.start()
    (container,) = docker.made
    assert container.image == "some/etcd"
    assert container.settings["command"] == ["--name=n0"]
    assert container.settings["network_mode"] == "host"
    assert sorted(container.settings["volumes"]) == [
        (str(tmp_path / name), str(tmp_path / name), "rw") for name in ("n0", "tls")
    ]
    assert process.log() == "out\nerr\n"
    owner.process([], tmp_path / "n1" / "etcd.log")
    owner.close()
    assert container.calls == ["start", "removed"]
    assert not (tmp_path / "doomed").exists()


def test_signals_become_calls_of_docker(docker, tmp_path):
    process = Containers("some/etcd", set(), []).process([], tmp_path / "etcd.log")
    process.start()
    process.signal(signal.SIGCONT)
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGSTOP)
    assert process.is_running()
    process.signal(signal.SIGKILL)
    assert not process.is_running()
    process.signal(signal.SIGTERM)
    process.start()
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGCONT)
    process.signal(signal.SIGTERM)
    (container,) = docker.made
    assert container.calls == [
        "start", "pause", "unpause", "SIGKILL", "start", "pause", "unpause", "SIGTERM",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "image"),
    [("some/etcd", "some/etcd"), (None, start.IMAGE), ("", start.IMAGE)],
)
def test_container_is_used_without_etcd_and_has_an_image(
    docker, monkeypatch, tmp_path, given, image
):
    if given is None:
        monkeypatch.delenv("RINK_TEST_ETCD_IMAGE", raising=False)
    else:
        monkeypatch.setenv("RINK_TEST_ETCD_IMAGE", given)
    monkeypatch.setattr(start, "find_etcd", lambda: None)
    owner = start._source(SETTINGS)([])
    assert isinstance(owner, Containers)
    owner.process([], tmp_path / "etcd.log").start()
    assert [container.image for container in docker.made] == [image]


def test_without_a_server_to_start_the_error_names_the_remedies(monkeypatch):
    monkeypatch.setattr(start, "find_etcd", lambda: None)
    monkeypatch.setattr(start.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"rink\[testing\].*RINK_TEST_ETCD"):
        start._source(SETTINGS)


def test_container_without_docker_is_a_config_error(monkeypatch, tmp_path):
    def fails(*_, **__):
        raise OSError("no such socket")

    monkeypatch.setattr(testcontainers_container, "DockerContainer", fails)
    process = Containers("some/etcd", set(), []).process([], tmp_path / "etcd.log")
    with pytest.raises(ConfigError, match=r"some/etcd .*RINK_TEST_ETCD_IMAGE.*no such socket"):
        process.start()
    assert not process.is_running()
    process.remove()


def test_container_with_a_command_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="a container cannot run etcd by"):
        Containers("some/etcd", set(), []).process([], tmp_path / "etcd.log", ("env",))
