"""What CUPTI calls things wherever its records are read: SQLite files of NVIDIA's profilers, and the collector."""

from __future__ import annotations

# CUpti_ActivityMemcpyKind, in order.
COPY_KINDS = {
    1: "host_to_device",
    2: "device_to_host",
    3: "host_to_device",  # to an array
    4: "device_to_host",
    5: "device_to_device",
    6: "device_to_device",
    7: "device_to_device",
    8: "device_to_device",
    9: "host_to_host",
    10: "peer",
}
# Columns of the `kernels` table: members of CUPTI's kernel record, which name the columns of SQLite files too.
LAUNCH_SHAPE = {
    "grid_x": "gridX",
    "grid_y": "gridY",
    "grid_z": "gridZ",
    "block_x": "blockX",
    "block_y": "blockY",
    "block_z": "blockZ",
    "registers_per_thread": "registersPerThread",
}
