"""Share code between the demos: servers, processes, notes and reports."""
