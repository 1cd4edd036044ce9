"""Start and break real Redis servers for tests."""
