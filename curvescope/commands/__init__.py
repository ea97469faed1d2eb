"""One module per command: its arguments, and `run(args)` that returns the exit code."""
