"""Run jobs and streaming queries of Spark as roles.

One of several drivers runs each job, and stops it when it loses the role.
"""
