"""Names and numbers of CUPTI's records, for SQLite files of NVIDIA's profilers and for the collector."""

from __future__ import annotations

# CUpti_ActivityMemcpyKind, in order.
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",  # to an array
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
# Columns of the `kernels` table, and members of CUPTI's kernel record; columns of SQLite files have the same names.
LAUNCH_SHAPE = {
    "grid_x": "gridX",
    "grid_y": "gridY",
    "grid_z": "gridZ",
    "block_x": "blockX",
    "block_y": "blockY",
    "block_z": "blockZ",
    "registers_per_thread": "registersPerThread",
}
