"""Keep streams in Redis: keys, scripts, and the values of scripts."""
