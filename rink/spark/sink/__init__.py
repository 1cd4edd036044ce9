"""The sink: rows into streams of rink.streams, each batch once. `writers` has what Spark calls."""
