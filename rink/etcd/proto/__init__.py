"""Generated messages; see rinketcd.proto."""
