"""Show a group to anybody who reads its keys: status, history, standbys."""
