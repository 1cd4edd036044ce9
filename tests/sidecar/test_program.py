"""A sidecar from its start to its end, without a group."""

import pytest
from sidecar_apart import run

from rink import aio
from rink.errors import ConfigError
from rink.sidecar.listeners import Address
from rink.sidecar.program import Program, Settings

LOOPBACK = Address("127.0.0.1", 0)


def program(settings, **member):
    """A sidecar that would join with these settings of its member."""
    session = aio.Session("http://127.0.0.1:1")
    return Program(settings, session, lambda: aio.Rink(session, "orders", **member))


@run
async def test_member_that_cannot_be_made_is_refused_before_it_listens(tmp_path):
    """The first program that asks for a role would find out otherwise, and end the sidecar."""
    path = tmp_path / "api" / "socket"
    with pytest.raises(ConfigError, match="member name is empty"):
        program(Settings(listen=Address(path=str(path)), public=None), name="")
    assert not path.exists()
