"""Run a driver whose query shares a checkpoint with another driver's.

    python meeting_process.py REDIS ETCD FOLDER NAME

Roles must prevent that; here each driver has a group of its own. It works like `driver_process.py`,
but its query only counts, and writes nothing.
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
