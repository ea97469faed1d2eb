"""How long `curvescope bench compile` takes for all kernels and architectures: nothing kept, then everything kept.

The goal is under a minute with nothing kept. Wall time depends on what else runs; CPU time says what it would be alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

_COMMAND = (sys.executable, "-m", "curvescope.cli", "bench", "compile", "--json")


def measure(name: str, cache: str) -> None:
    """Run the command with this cache, print wall and CPU seconds."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(_COMMAND, env={**os.environ, "CURVESCOPE_CACHE": cache}, check=True, stdout=subprocess.PIPE)
    wall_s, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    told = json.loads(done.stdout)
    print(f"{name:<13} {wall_s:6.2f} s, CPU {cpu_s:6.2f} s, {told['cubins']} cubins, {told['from_cache']} kept")


def main() -> None:
    """Measure both with a cache of our own."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as cache:
        measure("nothing kept", cache)
        measure("all kept", cache)


if __name__ == "__main__":
    main()
