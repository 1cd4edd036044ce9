"""Run test servers as processes: folders, ports, signals, and a reaper."""
