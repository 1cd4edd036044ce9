"""Process the events of partitions: the worker, from a grant to its loss."""
