"""Keep streams in Redis: keys, scripts, and the values that scripts take and return."""
