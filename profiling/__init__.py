"""Recording: the trace schema, the store, recorders, readers, networks, steps and sweeps."""
