"""Process the events of partitions in a worker, from grant to loss."""
