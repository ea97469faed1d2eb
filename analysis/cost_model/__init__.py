"""What a kernel should cost on a GPU that is not here: launches from shapes, times from a few fitted constants.

A layer and phase become launches (grid, tile, executed FLOPs, bytes at L2 and DRAM, workspace); a launch costs the
slowest of compute, DRAM and L2, plus its start. Everything is vectorised: shapes are arrays, one entry per problem.
What it was fitted on and how well it holds stands in docs/cost-model.md.
"""
