"""Test how a sidecar finds its pod and the API server.

The calls are tested in integration/sidecar.
"""

import asyncio
import ssl

import pytest
import trustme
from jumping import jumping

from rink.errors import ConfigError
from rink.sidecar.pod_api import Pod, PodApi, PodApiError, read_token, tls_context

LEADER = frozenset({"leader"})

ENVIRONMENT = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "POD_NAME": "web-1",
    "POD_NAMESPACE": "shop",
}


@pytest.fixture
def mounted(tmp_path):
    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("other\n")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return tmp_path


def test_pod_is_found_in_the_environment(mounted):
    assert Pod.of(ENVIRONMENT, mounted) == Pod("10.0.0.1", 443, "shop", "web-1", mounted)


def test_namespace_is_that_of_the_account_if_none_is_set(mounted):
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "POD_NAMESPACE"}
    assert Pod.of(environment, mounted).namespace == "other"


@pytest.mark.parametrize("name", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAME"])
def test_name_that_is_missing_is_said(mounted, name):
    with pytest.raises(ConfigError, match=f"--label-pod needs {name} in the environment"):
        Pod.of(ENVIRONMENT | {name: ""}, mounted)


def test_port_that_is_no_number_is_refused(mounted):
    with pytest.raises(ConfigError, match="must be a number"):
        Pod.of(ENVIRONMENT | {"KUBERNETES_SERVICE_PORT": "tcp://10.0.0.1:443"}, mounted)


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_file_that_is_missing_is_named(mounted, file):
    (mounted / file).unlink()
    with pytest.raises(ConfigError, match=f"{file}: No such file"):
        Pod.of(ENVIRONMENT, mounted)


def test_token_is_read_without_its_line_end(mounted):
    (mounted / "token").write_text("secret\n")
    assert read_token(mounted) == "secret"


@pytest.mark.parametrize("content", [b"", b"\n", b"one\r\nX-Two: 2", b"a b", b"\xff"])
def test_content_that_is_no_token_is_not_shown(mounted, content):
    (mounted / "token").write_bytes(content)
    with pytest.raises(ValueError, match=r"has no token$") as caught:
        read_token(mounted)
    assert "two" not in str(caught.value).lower()


def test_ca_without_the_extensions_of_a_strict_check_is_trusted(mounted, monkeypatch):
    made = ssl.create_default_context

    def strict(**more):  # as from Python 3.13 on
        context = made(**more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = tls_context(mounted)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


class Answering(PodApi):
    """Answer calls by the rights of a token.

    `rights` are the fields that the token may change.
    """

    def __init__(self):
        super().__init__(None, LEADER)
        self.rights = set()
        self.changed = []
        self.dry_runs = 0
        self.hangs = False

    async def _patch(self, metadata, query=""):
        self.dry_runs += bool(query)
        if self.hangs and not query:
            await asyncio.Event().wait()
        if not self.rights >= metadata.keys():
            raise PodApiError("the API server answered 403", is_refused=True)
        if not query:
            self.changed.append(metadata)


@jumping
async def test_refusal_for_want_of_rights_is_no_proof_of_a_policy():
    api = Answering()
    with pytest.raises(PodApiError, match="answered 403"):
        await api.label(LEADER)
    api.rights = {"labels", "annotations"}  # the Role is bound, and no policy applied
    with pytest.raises(PodApiError, match="may change more"):
        await api.label(LEADER)
    assert api.changed == []
    api.rights = {"labels"}
    await api.label(LEADER)
    await api.label(LEADER)
    assert api.changed == 2 * [{"labels": {"etcd-rink/leader": "held"}}]


@jumping
async def test_dry_run_is_not_repeated_after_a_label_that_was_too_slow():
    """Otherwise two slow calls would never fit into the time of one."""
    api = Answering()
    api.rights, api.hangs = {"labels"}, True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await api.label(LEADER)
    api.hangs = False
    await api.label(LEADER)
    assert api.dry_runs == 1
