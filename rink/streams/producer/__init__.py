"""Append records to partitions of streams."""
