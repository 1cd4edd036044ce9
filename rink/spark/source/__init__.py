"""The source: streams of rink.streams as rows. `readers` has what Spark calls."""
