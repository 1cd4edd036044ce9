"""Write rows into streams of rink.streams, each batch once.

Spark calls the classes in `writers`.
"""
