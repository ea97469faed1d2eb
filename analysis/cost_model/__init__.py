"""Models the time of kernels on any GPU: launches from shapes, times from a few fitted constants.

A layer and phase become launches (grid, tile, executed FLOPs, bytes at L2 and DRAM, workspace); a
launch costs the slowest of compute, DRAM and L2, plus its start. Everything is vectorised: shapes
are arrays, one entry per problem. docs/internals/cost-model.md describes the data behind the
fit and the accuracy.
"""
