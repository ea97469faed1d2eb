"""Facts about devices and the host: data sheets, limits, occupancy, ceilings, clocks and power."""
