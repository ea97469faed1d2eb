"""Which step, layer, phase and operator a kernel belongs to, and the work it does."""
