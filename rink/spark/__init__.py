"""The data pipeline on Spark: streams as tables, jobs as roles, fenced output, role maps at scale.

Importing it brings PySpark (`rink[spark]`); nothing else of Rink does.
"""
