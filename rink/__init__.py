"""Share roles among processes over etcd, each role with one holder.

    import rink

    with rink.Session("http://127.0.0.1:2379") as session, rink.Rink(session, "orders") as r:
        with r.await_role("leader") as role:       # blocks; role.lost is set on loss
            while not role.lost.wait(1.0):
                lead(token=role.token)
        if role := r.get_role("job-17"):           # a Role, or None: no etcd traffic, ever
            with role:
                work(token=role.token)

`rink.aio` has the same names for asyncio. `import rink.testing` brings an etcd for your tests.
"""

from typing import TYPE_CHECKING

from rink import errors
from rink._lazy import named
from rink.errors import *  # noqa: F403 - all errors are public
from rink.pip_distribution import refuse_other_distribution

refuse_other_distribution(__path__[0])  # noqa: F405 - Python defines it for each package

if TYPE_CHECKING:
    from rink import aio as aio
    from rink.core.schemes import SchemeFailed, UnknownScheme, rank_of
    from rink.core.schemes import register as register_scheme
    from rink.core.values import Version
    from rink.inspect.member_status import MemberStatus, Status
    from rink.rink import Rink, RoleSet
    from rink.roles import Change, Role
    from rink.session import Session
else:
    # Names are imported on first use, so code without a session (a Spark source) loads no gRPC.
    __getattr__, __dir__ = named(
        __name__,
        {
            "Change": "rink.roles",
            "MemberStatus": "rink.inspect.member_status",
            "Rink": "rink.rink",
            "Role": "rink.roles",
            "RoleSet": "rink.rink",
            "SchemeFailed": "rink.core.schemes",
            "Session": "rink.session",
            "Status": "rink.inspect.member_status",
            "UnknownScheme": "rink.core.schemes",
            "Version": "rink.core.values",
            "aio": "rink.aio",
            "rank_of": "rink.core.schemes",
            "register_scheme": "rink.core.schemes:register",
        },
    )

__all__ = [
    "Change", "MemberStatus", "Rink", "Role", "RoleSet", "SchemeFailed", "Session", "Status",
    "UnknownScheme", "Version", "rank_of", "register_scheme",
]  # fmt: skip
__all__ += errors.__all__
