"""Convert records to JSON and back, by the types of their fields."""
