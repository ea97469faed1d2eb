"""How long `curvescope --help` takes, against `python -c pass`: whole processes in turn, ratio of
each pair.

The goal is under 0.3 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

_PAIRS = 15
_OURS = (sys.executable, "-m", "curvescope.cli", "--help")
_BARE = (sys.executable, "-c", "pass")


def seconds(command: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    seconds(_OURS)
    seconds(_BARE)
    pairs = [(seconds(_OURS), seconds(_BARE)) for _ in range(_PAIRS)]
    for name, values in (
        ("curvescope --help, s", [ours for ours, _ in pairs]),
        ("python -c pass, s", [bare for _, bare in pairs]),
        ("ratio", [ours / bare for ours, bare in pairs]),
    ):
        print(
            f"{name:<22} median {statistics.median(values):.3f}  ({min(values):.3f} … "
            f"{max(values):.3f}), n {_PAIRS}"
        )


if __name__ == "__main__":
    main()
