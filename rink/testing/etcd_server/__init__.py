"""Start and break real etcd servers for tests."""
