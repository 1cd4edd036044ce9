"""Sticky roles over etcd."""
