"""Use the shop's streams in a real Redis, in tests on a real Spark."""

from spark_support import rows_of


class ShopOn:
    """The app of `spark_shop` on a server."""

    def __init__(self, client, url, module):
        self.redis, self.url, self.module = client, url, module

    def options(self, stream="orders", **more):
        given = {"app": "spark_shop:app", "stream": stream, "redis": self.url, **more}
        return {name: str(value) for name, value in given.items()}

    def send(self, records, stream="orders", hold=True):
        """Append records, and make a processor hold trimming back."""
        made = self.module.app.streams[stream]
        self.redis.hset(made.names.about, mapping={"format": 1, "partitions": made.partition_count})
        for number in range(made.partition_count if hold else 0):
            offsets = made.names.partition(number).offsets
            self.redis.hset(offsets, "format", 1)
            self.redis.hsetnx(offsets, "bill", "0-0")
        pipeline = self.redis.pipeline(transaction=False)
        for plain in records:
            record = made.record(**plain)
            names = made.names.partition(made.partition_of(record))
            pipeline.xadd(names.stream, {"d": made.codec.encode(record)})
        pipeline.execute()

    def rows(self, stream="orders"):
        made = self.module.app.streams[stream]
        return rows_of(self.redis, made, made.partition_count)

    def every(self, stream="orders"):
        """Return the records of all partitions."""
        return [row for rows in self.rows(stream) for row in rows]

    def staged(self):
        return self.redis.keys("*:staged:*")
