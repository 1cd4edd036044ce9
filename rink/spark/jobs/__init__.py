"""Run jobs and streaming queries of Spark as roles of several drivers."""
