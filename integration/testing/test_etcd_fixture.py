"""Test the fixture of a real etcd."""


def test_server_that_a_test_froze_runs_in_the_next_one(rink_etcd_server, request):
    rink_etcd_server.freeze()
    assert request.getfixturevalue("rink_server").is_healthy


def test_server_that_a_test_killed_runs_in_the_next_one(rink_etcd_server, request):
    rink_etcd_server.kill()
    assert request.getfixturevalue("rink_server").is_healthy
