"""Show a group from its keys in etcd: status, versions, standbys."""
