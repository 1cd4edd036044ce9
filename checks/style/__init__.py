"""Check and measure the project's language and sizes; `.ci/style` runs it."""
