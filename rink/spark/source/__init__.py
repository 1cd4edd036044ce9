"""Read streams of rink.streams as rows.

Spark calls the classes in `readers`.
"""
