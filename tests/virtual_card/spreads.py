"""How much the H100 varied from run to run, by its recordings: `python -m
tests.virtual_card.spreads` prints the tables `spreads` of measured.toml.

Each is a list of factors, the quantiles of `SHARES`. They are of times over the median of the same
work, so they say nothing of how long it takes. What is rarer than one of a thousand is left out:
the first launch of a module takes thousands of times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORDINGS = ("examples/recordings/vgg_a-h100", "tests/data/h100/found-late")
SHARES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
_LAUNCH = "LaunchKernel"
_OF_HOST = (1, 2)  # batch sizes whose steps wait for the host
_OF_CARD = (64, 128, 256)  # those in which the card has work until the end
_KERNEL = ("name", "layer", "grid_x", "grid_y", "grid_z")  # what is the same work in each step
_LONG_NS = 1_000_000  # kernels from there on vary much less
_DIGITS = 5


def over_median(times: Any, groups: Sequence[Any]) -> Any:
    """Times over the median of their group, of groups with more than two."""
    grouped = times.groupby(list(groups))
    return (times / grouped.transform("median"))[grouped.transform("size") > 2]


def of_recording(folder: Path) -> Iterator[tuple[str, Any]]:
    """Factors of a recording by the name of what varies: `call` of each launch, `work` of each
    short kernel and `long` of each long one, `host` of each step that waits for the host and `step`
    of each that does not.
    """
    from curvescope.profiling.recording.store import open_recording

    recording = open_recording(folder)
    steps = recording.frame("steps").set_index("step")
    batch, profiled = steps["batch"], steps["profiled"]
    timed = steps[~profiled]
    for name, batches in (("host", _OF_HOST), ("step", _OF_CARD)):
        chosen = timed[timed["batch"].isin(batches)]
        yield name, over_median(chosen["duration_ns"], [chosen["batch"], chosen["round"]])
    calls = recording.frame("api_calls")
    calls = calls[calls["name"].str.contains(_LAUNCH)]
    yield "call", over_median(calls["duration_ns"], [calls["name"], calls["step"]])
    kernels = recording.frame("kernels").sort_values(["step", "start_ns"])
    kernels = kernels.assign(batch=kernels["step"].map(batch))
    kernels = kernels[kernels["batch"].isin(_OF_CARD)]
    place = kernels.groupby(["step", *_KERNEL]).cumcount()
    groups = [kernels["batch"], *(kernels[name] for name in _KERNEL), place]
    factors, is_long = (
        over_median(kernels["duration_ns"], groups),
        kernels["duration_ns"] >= _LONG_NS,
    )
    for name, chosen in (("work", ~is_long), ("long", is_long)):
        yield name, factors[chosen[factors.index]]


def spreads() -> dict[str, tuple[int, list[float]]]:
    """By the name of what varies: of how many times, and the factors."""
    import pandas as pd

    found: dict[str, list[Any]] = {}
    for folder in RECORDINGS:
        for name, factors in of_recording(ROOT / folder):
            found.setdefault(name, []).append(factors)
    together = {name: pd.concat(parts) for name, parts in found.items()}
    quantiles = {name: factors.quantile(list(SHARES)) for name, factors in together.items()}
    return {
        name: (len(together[name]), [round(float(value), _DIGITS) for value in values])
        for name, values in quantiles.items()
    }


def main() -> None:
    for name, (count, factors) in spreads().items():
        print(f"{name} = {{ n = {count}, factors = {factors} }}")


if __name__ == "__main__":
    main()
