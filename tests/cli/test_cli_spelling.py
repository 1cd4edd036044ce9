"""Test that errors name settings as the command's options."""

import os

import grpc
import pytest
from click.testing import CliRunner

from rink.cli.commands import commands
from rink.cli.options import as_options
from rink.errors import ConfigError, EtcdTls
from rink.etcd import tlsprobe
from rink.etcd.endpoints import Endpoint, check_user
from rink.etcd.error_map import read_fault, refusal


@pytest.fixture
def fails(monkeypatch):
    """Run a command that fails, and return its stderr."""
    for name in [one for one in os.environ if one.startswith("RINK_ETCD")]:
        monkeypatch.delenv(name)

    def fails(*options):
        result = CliRunner().invoke(commands, ["groups", *options])
        assert result.exit_code != 0
        return result.stderr.splitlines()[-1]

    return fails


NO_SUCH_FILE = "'/none.pem' cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--user u", "--user 'u' is given without --password"),
        ("--password p", "--password is given without --user"),
        ("--user= --password p", "--user is empty"),
        ("--cert /none.pem", "--cert is given without --key"),
        ("--key /none.pem", "--key is given without --cert"),
        ("--ca /none.pem", f"--ca {NO_SUCH_FILE}"),
        ("--cert /none.pem --key /none.pem", f"--cert {NO_SUCH_FILE}"),
        ("--ca README.md", "--ca 'README.md' is not PEM"),
        ("--endpoints ,", "--endpoints is empty"),
        ("--endpoints http://a,https://b", "--endpoints mix http and https"),
        ("--endpoints http://u:p@a", "pass --user and --password"),
        ("--endpoints http://127.0.0.1:1", "(--endpoints or RINK_ETCD)"),
        ("--prefix rink", "--prefix must end with '/'"),
        ("--timeout inf", "--timeout must be a positive number of seconds, not inf"),
    ],
)
def test_command_error_names_the_option_of_the_setting(fails, options, said, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    told = fails(*options.split())
    assert said in told
    assert not [name for name in ("ca", "cert", "key", "user", "password") if f"{name}=" in told]


class Said(grpc.RpcError):
    def __init__(self, details):
        self.details = lambda: details

    def code(self):
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("CERTIFICATE_VERIFY_FAILED: self-signed", "(check --ca, and that the certificate names"),
        ("TLSV1_ALERT_UNKNOWN_CA", "(check --cert and --key)"),
    ],
)
def test_fault_of_grpc_names_the_option_of_the_setting(details, said):
    with as_options():
        assert said in read_fault(Said(details), has_user=False).words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("etcdserver: user name is empty", "(this cluster wants --user and --password)"),
        (
            "etcdserver: authentication failed, invalid user ID or password",
            "(check --user and --password)",
        ),
    ],
)
def test_refusal_of_etcd_names_the_option_of_the_setting(words, said):
    with as_options():
        assert said in str(refusal(grpc.StatusCode.INVALID_ARGUMENT, words, "it", "a"))


def test_tls_probe_names_the_option_of_the_setting():
    """The integration tests have certificates and servers of this kind."""
    with as_options():
        assert "pass --cert and --key" in tlsprobe.advice("CERTIFICATE_REQUIRED")
        error = tlsprobe.speaks_tls(Endpoint("http://a:1", "a", 1, False))
    assert isinstance(error, EtcdTls)
    assert str(error) == "http://a:1 speaks TLS: use https://, with --ca"


def test_setting_is_spelled_as_in_code_after_the_command(fails):
    assert "--user 'u'" in fails("--user", "u")
    with pytest.raises(ConfigError, match="'u' is given without password"):
        check_user("u", None)
