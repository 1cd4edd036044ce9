"""Jobs and streaming queries of Spark as roles: one driver of several runs each, and stops when it
loses the role.
"""
