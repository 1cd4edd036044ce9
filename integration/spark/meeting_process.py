"""A driver in a group of its own, whose query has a checkpoint in common with another's: what roles
are to prevent.

    python meeting_process.py REDIS ETCD FOLDER NAME

As `driver_process.py`, but for the group, and what the query does: it counts, and writes nowhere.
"""

import sys

from driver_process import begin, note_batches


def main():
    _, etcd, folder, name = sys.argv[1:]
    spark = begin(folder, name)
    import rink
    from rink.spark import JobRunner

    with (
        rink.Session(etcd, ttl=5) as session,
        rink.Rink(session, f"of-{name}", name=name, initial_delay=0) as r,
        JobRunner(spark, r) as jobs,
    ):

        @jobs.query("meets")
        def meets(job):
            return (
                job.spark.readStream.format("rate")
                .option("rowsPerSecond", 10)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(processingTime="100 milliseconds")
                .start()
            )

        note_batches(jobs, folder, name)


if __name__ == "__main__":
    main()
