"""Says how often a long wait is told of, wherever one waits."""

REPORT_EVERY_S = 10.0
"""Interval between two reports of a long wait, in seconds."""
