"""Fork members for tests that name this module in `pytest_plugins`."""

import pytest
from faults_members_group import Group
from faults_members_support import Members


@pytest.fixture(scope="session")
def zygote():
    """Start the zygote that forks the members of all tests."""
    members = Members()
    yield members
    members.close()


@pytest.fixture
def members(zygote):
    """Return the zygote, and fail the test on a member's traceback."""
    yield zygote
    zygote.check()


@pytest.fixture
def group_of(members, etcd_url, tmp_path_factory):
    """Make groups that follow these roles; end all members in teardown."""
    groups = []

    def group_of(roles, ttl=3, endpoints=etcd_url):
        groups.append(Group(members, endpoints, tmp_path_factory.mktemp("group"), roles, ttl))
        return groups[-1]

    yield group_of
    for group in groups:
        group.close()
