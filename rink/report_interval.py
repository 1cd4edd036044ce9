"""Define how often a long wait is logged."""

REPORT_INTERVAL_S = 10.0
"""Interval between two log lines of a long wait, in seconds."""
