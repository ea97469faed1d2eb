"""The operators of a forward step replayed alone, against the same operators in the step: how far apart are their sums?

For each network and batch size, in one process and in turn: a step, and the replay of all its outermost operators. The
sums of the operators' times are compared; what lies between operators (Python, the loop over layers) is in neither.

Times are CPU times of one thread, so that other processes on the machine hardly matter; in the step, a mode of torch
times each function that the program calls. With --wall they are wall times with all threads, and the profiler gives
those in the step. Of each operator the fastest round counts, on both sides: what disturbs only adds time. The interval
of the ratio is from resampled rounds.

The replay takes the operators in the order of the step, each with tensors of its own. So a layer's weights are as cold
as in the step: those of all other layers were used since. The operands that depend on the batch size are read before
each call, because in the step the operator before has just written them. The result of a call is freed after the next
one. --caches compares that with caches that are cold for all operands, and with caches that are warm for all.

    python benchmarks/replay_against_step.py [NETWORK ...] [--batch 1,2,4,8] [--rounds 10]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvescope.experiments.replay.rebuild import Replayed, rebuild
from curvescope.experiments.replay.recorded_call import CallFamily, CannotReplay, RecordedCall, families
from curvescope.kernels.backends import open_backend
from curvescope.profiling.hardware.host import describe_environment
from curvescope.profiling.measure.visit import record_step, warm_up_profiler
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network

RESULTS = Path(__file__).parent / "results" / "replay_against_step.json"
NETWORKS = ("alexnet", "vgg_a", "resnet50", "bert_base")
AS_IN_STEP, COLD, WARM = "as in step", "cold", "warm"
TARGET = 0.10  # largest deviation of the sums
_RESAMPLES = 400
_SHOWN = 4  # operators that are named where the sums lie further apart

Times = list[tuple[str, int]]  # operators in the order of a step, with their times in ns
Clock = Callable[[], int]


@dataclass
class Ready:
    """A call to replay.

    Attributes:
        replayed: the call.
        inputs: views of the operands that depend on the batch size, which NumPy reads without an operator.
    """

    replayed: Replayed
    inputs: list[Any]

    @property
    def call(self) -> RecordedCall:
        """The recorded call."""
        return self.replayed.call


def calls_of(workload: Workload, batch: int) -> list[RecordedCall]:
    """The outermost operators of one profiled step."""
    workload.load(batch)
    workload.time_step()
    warm_up_profiler(workload)
    return [RecordedCall.of_row({**row, "batch": batch}) for row in record_step(workload).operators]


def prepare(found: Sequence[CallFamily], batch: int) -> tuple[list[Ready], list[tuple[RecordedCall, str]]]:
    """The calls at a batch size ready to run, in the order of the step, and those that cannot run."""
    ready, left_out = [], []
    for family in sorted((one for one in found if batch in one.calls), key=lambda one: one.calls[batch].position):
        try:
            replayed = rebuild(family.calls[batch])
        except CannotReplay as error:
            left_out.append((family.calls[batch], str(error)))
            continue
        tensors = [replayed.arguments[index] for index in family.batch_dimensions()]
        ready.append(Ready(replayed, [one.detach().numpy() for one in tensors if hasattr(one, "numpy")]))
    return ready, left_out


def replay(calls: Sequence[Ready], caches: str, flush: Callable[[], None], clock: Clock) -> Times:
    """Run all calls once, in their order."""
    times: Times = []
    kept: Any = None
    for ready in calls:
        run = ready.replayed.run
        for _ in range(ready.call.calls):
            if caches == COLD:
                flush()
            elif caches == WARM:
                kept = run()
            else:
                for array in ready.inputs:
                    array.sum()
            start_ns = clock()
            result = run()
            times.append((ready.call.op, clock() - start_ns))
            kept = result  # the one before is freed outside the time
    del kept
    return times


def step_by_functions(workload: Workload) -> Times:
    """CPU times of torch's functions in a step of one thread."""
    from torch.overrides import TorchFunctionMode

    times: Times = []

    class Timing(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            start_ns = time.thread_time_ns()
            result = function(*args, **(kwargs or {}))
            times.append((getattr(function, "__name__", str(function)), time.thread_time_ns() - start_ns))
            return result

    with Timing():
        workload.time_step()
    return times


def step_by_profiler(workload: Workload) -> Times:
    """Wall times of the outermost operators in a profiled step."""
    return [(row["op"], row["duration_ns"]) for row in record_step(workload).operators]


def compare(
    workload: Workload, found: Sequence[CallFamily], batch: int, rounds: int, caches: Sequence[str], *, wall: bool
) -> dict[str, Any]:
    """Measure one batch size; times in ms, ratios of replay to step with the ends of their 95 % intervals."""
    import torch

    backend = open_backend("torch", "cpu")
    clock = time.perf_counter_ns if wall else time.thread_time_ns
    time_step = step_by_profiler if wall else step_by_functions
    workload.load(batch)
    workload.time_step()
    steps: list[Times] = []
    alone: dict[str, list[Times]] = {kind: [] for kind in caches}
    whole: list[int] = []
    with torch.inference_mode():
        ready, left_out = prepare(found, batch)
        replay(ready, AS_IN_STEP, backend.flush, clock)  # maps memory, creates primitives
        for _ in range(rounds):
            start_ns = clock()
            workload.time_step()
            whole.append(clock() - start_ns)
            steps.append(time_step(workload))
            for kind in caches:
                alone[kind].append(replay(ready, kind, backend.flush, clock))
    by_kind = by_operator(alone[caches[0]]), by_operator(steps)
    differences = {name: [by_kind[0].get(name, 0.0), by_kind[1].get(name, 0.0)] for name in {*by_kind[0], *by_kind[1]}}
    largest = sorted(differences, key=lambda name: -abs(differences[name][0] - differences[name][1]))[:_SHOWN]
    return {
        "batch": batch,
        "n": rounds,
        "calls": sum(one.call.calls for one in ready),
        "step_ms": min(whole) / 1e6,
        "operators_in_step_ms": total_ns(steps) / 1e6,
        "replayed_ms": {kind: total_ns(times) / 1e6 for kind, times in alone.items()},
        "ratio": {kind: ratio(times, steps) for kind, times in alone.items()},
        "left_out": [{"op": call.op, "layer": call.layer, "reason": reason} for call, reason in left_out],
        "alone_and_in_step_ms": {name: differences[name] for name in largest},
    }


def fastest(rounds: Sequence[Times]) -> list[int]:
    """The fastest time of each operator, ns."""
    return [min(durations) for durations in zip(*([ns for _, ns in times] for times in rounds), strict=True)]


def total_ns(rounds: Sequence[Times]) -> int:
    """Sum of the operators' fastest times."""
    return sum(fastest(rounds))


def by_operator(rounds: Sequence[Times]) -> dict[str, float]:
    """Sum of the fastest times by operator, in ms; in place or not counts as one."""
    found: dict[str, float] = defaultdict(float)
    for (name, _), duration_ns in zip(rounds[0], fastest(rounds), strict=True):
        found[name.removeprefix("aten::").rstrip("_")] += duration_ns / 1e6
    return found


def ratio(alone: Sequence[Times], steps: Sequence[Times]) -> tuple[float, float, float]:
    """Ratio of the sums, and the ends of its interval over resampled rounds."""
    draw = random.Random(0)
    resampled = []
    for _ in range(_RESAMPLES):
        chosen = draw.choices(range(len(steps)), k=len(steps))
        resampled.append(total_ns([alone[r] for r in chosen]) / total_ns([steps[r] for r in chosen]))
    low, *_, high = statistics.quantiles(resampled, n=40)
    return total_ns(alone) / total_ns(steps), low, high


def show(network: str, one: dict[str, Any]) -> None:
    """Print the row of one batch size."""
    ratios = "  ".join("{} {:.3f} [{:.3f}, {:.3f}]".format(kind, *value) for kind, value in one["ratio"].items())
    times = f"step {one['step_ms']:.1f} ms, its operators {one['operators_in_step_ms']:.1f} ms"
    print(f"{network} batch {one['batch']}: {times}, {one['calls']} calls, n={one['n']}; {ratios}", flush=True)
    for left in one["left_out"]:
        print(f"  not replayed: {left['layer']} {left['op']}: {left['reason']}")
    if abs(one["ratio"][AS_IN_STEP][0] - 1) > TARGET:
        for name, (alone_ms, in_step_ms) in one["alone_and_in_step_ms"].items():
            print(f"  {name}: alone {alone_ms:.2f} ms, in step {in_step_ms:.2f} ms")


def main() -> None:
    """Compare, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--batch", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--caches", action="store_true", help="replay with cold and with warm caches, too")
    parser.add_argument("--wall", action="store_true", help="wall times of all threads, on a quiet machine")
    parser.add_argument("--write", action="store_true", help=f"add the rows to {RESULTS.name}")
    args = parser.parse_args()
    if not args.wall:
        import torch

        torch.set_num_threads(1)
    batches = [int(batch) for batch in args.batch.split(",")]
    caches = (AS_IN_STEP, COLD, WARM) if args.caches else (AS_IN_STEP,)
    for name in args.networks:
        workload = Workload(get_network(name), "cpu", "forward")
        found = families([call for batch in batches for call in calls_of(workload, batch)])
        for batch in batches:
            row = compare(workload, found, batch, args.rounds, caches, wall=args.wall)
            show(name, row)
            if args.write:
                write(name, row, "wall" if args.wall else "one thread's CPU time")


def write(network: str, row: dict[str, Any], clock: str) -> None:
    """Add a batch size of a network to the file of results, or replace it."""
    document = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    networks = document.get("networks", {})
    others = [other for other in networks.get(network, []) if other["batch"] != row["batch"]]
    networks[network] = sorted([*others, row], key=lambda one: one["batch"])
    document = {**describe_environment(), "clock": clock, "networks": networks}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
