"""Append records to partitions."""
