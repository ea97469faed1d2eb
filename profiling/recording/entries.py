"""The entries of `recording.json`, written once as data: a recording is held to them when it is
opened.

Every entry but the first three may be absent or null: it is unknown. Entries that are not listed
are kept and not checked: recorders and plugins may add their own.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...base.errors import CurvescopeError
from .experiments import Experiment, FactorFacts

Count = Annotated[int, Meta(ge=0, le=(1 << 60))]
Size = Annotated[int, Meta(ge=1, le=(1 << 40))]
Number = Annotated[float, Meta(ge=0, le=1e30)]
Share = Annotated[float, Meta(ge=0, le=1)]
Moment = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Statistic = Annotated[str, Meta(pattern="^(mean of the faster half|median|mean)$")]
Range = tuple[Count | None, Count | None]


@dataclass(frozen=True)
class LostEntry:
    """One kind of lost data."""

    count: Count  # number of losses
    sentence: str  # what is lost
    severity: str | None = None  # lost, partial or repaired


@dataclass(frozen=True)
class AxisEntry:
    """What the steps vary."""

    name: Word  # name of the axis, e.g. batch or tokens
    unit: str | None = None  # what one value counts, plural


@dataclass(frozen=True, kw_only=True)
class ProtocolEntry:
    """How the steps were measured."""

    name: str | None = None  # name of the protocol
    statistic: Statistic | None = None  # statistic of the steps that the pace is
    rounds: Range | None = None  # least and greatest number of rounds


@dataclass(frozen=True, kw_only=True)
class UnmeasuredEntry:
    """One batch size without a measurement."""

    batch: Size  # the batch size
    why: str  # the reason in a word
    round: int | None = None  # round in which it was last tried
    detail: str | None = None  # what the program said


@dataclass(frozen=True, kw_only=True)
class DeviceEntry:
    """The device that ran."""

    kind: str | None = None  # cuda or cpu
    name: str | None = None  # its name
    key: str | None = None  # its key in the table of devices, of a modelled device
    threads: Count | None = None  # threads of a CPU's process
    compute_capability: str | None = None  # e.g. 7.0, or gfx90a
    sm_count: Count | None = None  # number of SMs
    clock_hz: Count | None = None  # clock by the driver, Hz
    memory_bytes: Count | None = None  # device memory, B
    memory_bytes_per_s: Number | None = None  # bandwidth by the driver, B/s
    l2_bytes: Count | None = None  # L2 cache, B
    l2_cache_bytes: Count | None = None  # L2 cache as PyTorch names it, B
    what_if: Mapping[str, Number] | None = None  # changed facts of a modelled device


@dataclass(frozen=True, kw_only=True)
class ServerEntry:
    """What the log of an inference server says of it."""

    server: str | None = None  # vLLM or SGLang
    version: str | None = None  # its version
    lines: str | None = None  # what the lines tell: steps, or rates between two lines
    engines: Count | None = None  # engines that wrote into the log, e.g. data-parallel ones
    captured_sizes: tuple[Size, ...] | None = None  # batch sizes of captured graphs, increasing
    largest_captured: Size | None = None  # the largest size that it was told to capture
    largest_with_graph: Size | None = None  # the largest size that a line says a graph ran
    smallest_without_graph: Size | None = None  # the smallest size that a line says none ran
    lines_without_graph: Count | None = None  # lines that say that no graph ran
    # lines that ran without a graph at numbers of requests that also ran with one
    lines_before_graphs: Count | None = None
    time_before_graphs: float | None = None  # their time over that with a graph, at equal requests
    # lines that are left out, as the requests changed in their time
    lines_of_changing_load: Count | None = None
    # of these entries, those that another start within the log changed
    changed: tuple[str, ...] | None = None
    graph_mode: str | None = None  # vLLM's cudagraph_mode
    most_requests: Size | None = None  # requests that may run at once
    eager: bool | None = None  # whether graphs are turned off
    chunk_tokens: Count | None = None  # tokens of a chunk of prefill
    cache_tokens: Count | None = None  # tokens that the KV cache holds
    speculative_tokens: Count | None = None  # tokens that are drafted for each step
    tensor_parallel: Count | None = None  # devices that share a layer
    steps_per_line: Count | None = None  # decode steps between two lines
    preemptions: Count | None = None  # how often requests were thrown out of the cache
    drafts: bool | None = None  # whether steps drafted tokens
    # lines whose accepted drafts are not told, so that their steps took longer
    lines_without_accepted: Count | None = None
    lines_running: Count | None = None  # lines with running requests that tell who waits
    # of these, lines whose requests waited while the KV cache was full
    lines_waiting_for_cache: Count | None = None


@dataclass(frozen=True, kw_only=True)
class HostEntry:
    """The machine around the device."""

    cpu: str | None = None  # name of the CPU
    usable_cores: Count | None = None  # cores that the process may use
    last_level_cache_bytes: Count | None = None  # cache that all cores share, B


@dataclass(frozen=True, kw_only=True)
class CeilingEntry:
    """One measured ceiling."""

    per_s: Number | None = None  # FLOP/s or B/s
    how: str | None = None  # problem and backend that reached it


@dataclass(frozen=True, kw_only=True)
class CeilingsEntry:
    """The measured ceilings of the device."""

    compute: Mapping[str, CeilingEntry] | None = None  # by precision
    bandwidth: Mapping[str, CeilingEntry] | None = None  # by memory level
    flops_per_s: Number | None = None  # of fp32, FLOP/s
    dram_bytes_per_s: Number | None = None  # of DRAM, B/s
    l2_bytes_per_s: Number | None = None  # of the L2 cache, B/s
    l1_bytes_per_s: Number | None = None  # of the L1 cache, B/s
    l3_bytes_per_s: Number | None = None  # of the L3 cache, B/s
    measured_utc: str | None = None  # when they were measured


@dataclass(frozen=True, kw_only=True)
class EnergyEntry:
    """The source of the steps' energies."""

    source: str | None = None  # what measured them
    missing: str | None = None  # why there are none


@dataclass(frozen=True, kw_only=True)
class ProbeVisit:
    """One visit between the batch sizes."""

    batch: Size  # the batch size


@dataclass(frozen=True, kw_only=True)
class ProbesEntry:
    """The probes between the batch sizes."""

    visits: tuple[ProbeVisit, ...] = ()  # visits, in order
    # last size on the line and first off it, of each jump
    found: tuple[tuple[Size, Size], ...] = ()
    least: Number = 0.0  # least deviation from the line that counts
    seconds: Number = 0.0  # time that it took, s


@dataclass(frozen=True, kw_only=True)
class CountedEntry:
    """What hardware counters counted at one batch size."""

    batch: Size  # the batch size
    kernels: Count  # kernels that the tool counted in one step
    unused: Count  # those that join no recorded kernel
    steps: Count  # recorded steps that the counts are joined to
    recorded: Count  # kernels of these steps
    joined: Count  # those that have counts now
    by_geometry: bool  # whether grid and block were compared
    tool: str | None = None  # the tool


@dataclass(frozen=True, kw_only=True)
class CountersEntry:
    """What hardware counters counted."""

    batches: tuple[CountedEntry, ...] = ()  # one per batch size


@dataclass(frozen=True, kw_only=True)
class RankEntry:
    """The rank of the process."""

    rank: Count  # rank among all
    world_size: Count | None = None  # number of ranks
    local_rank: Count | None = None  # rank on its node
    node: Count | None = None  # number of its node


@dataclass(frozen=True, kw_only=True)
class TogetherEntry:
    """Versions that were measured together."""

    run: str  # name of the run
    rounds_of_process: Count | None = None  # rounds after which processes started anew
    name: str | None = None  # name of the version
    place: str | None = None  # its folder, or its revision of a repository


@dataclass(frozen=True, kw_only=True)
class AroundEntry:
    """The problem of a recorded step that a microbenchmark lies around."""

    size: Size  # its value on the axis
    calls: Size  # its calls in the step


@dataclass(frozen=True, kw_only=True)
class RecordingJson:
    """The entries of `recording.json`."""

    format: str  # `curvescope recording`
    schema_version: Annotated[int, Meta(ge=1, le=(1 << 31))]  # version of the schema
    status: Annotated[str, Meta(pattern="^[a-z ]{1,40}$")]  # complete, or why not
    created_utc: Moment | None = None  # when it was made
    resumed_utc: tuple[Moment, ...] | None = None  # when it was resumed
    lost: Mapping[str, LostEntry] | None = None  # what was lost, by name
    # what the source does not have, by name, with a sentence
    missing: Mapping[str, str] | None = None
    # sweep, profile, table, server log, bench or model; null for recorded programs
    recording_type: str | None = None
    server: ServerEntry | None = None  # what the log of an inference server says of it
    recorder: str | None = None  # what recorded
    imported_from: str | None = None  # format of the imported file
    argv: tuple[str, ...] | None = None  # the command, without values
    # commit of the repository of the code; changes that were not committed are not seen
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{7,64}$")] | None = None
    network: str | None = None  # name of the network or step
    step: str | None = None  # where a user's step is, `FILE:FUNCTION` or `MODULE:FUNCTION`
    step_module: str | None = None  # name of its module, for layers
    # a user's program: its command, with {batch} or the name of another axis, and *** for values
    # that may be secrets
    program: tuple[str, ...] | None = None
    step_range: str | None = None  # name of the range that is a step of it
    step_line: str | None = None  # pattern of the line that it prints at the end of a step
    workdir: str | None = None  # folder of the folders in which it ran
    assign: tuple[str, ...] | None = None  # constants of its script that had other numbers
    # name of the function of JAX or TensorFlow whose calls are steps of it
    step_function: str | None = None
    steps_by: str | None = None  # what marked its steps
    # whether the function that marked its steps got arguments of the same shapes at all sizes
    same_shapes: bool | None = None
    may_be_steps: tuple[str, ...] | None = None  # functions that may be its step in that case
    # seconds until its first step had ended, the median, by batch size
    startup_s: Mapping[str, Number] | None = None
    # fewest timed steps of its runs that ended by themselves before they had as many as they were
    # asked for
    ended_after_steps: Count | None = None
    # seconds to make a step and run it first, compilation in them, the longest, by batch size
    setup_s: Mapping[str, Number] | None = None
    command_values: str | None = None  # name of the file in which its user has these values
    code_signature: str | None = None  # of who measured it, for the code that it names
    processes: Count | None = None  # of a sweep, in which timed steps ran
    step_not_importable: str | None = None  # why another process cannot run it again
    runs_in: str | None = None  # framework beside PyTorch in which a named network was built
    mode: str | None = None  # what a step runs: training, forward, …
    precision: str | None = None  # precision of its products
    compiled: bool | None = None  # whether torch.compile compiled it
    graphed: bool | None = None  # whether it was replayed as a CUDA graph
    input_shape: tuple[Size, ...] | None = None  # shape of a sample
    sequence_length: Size | None = None  # tokens of a sample
    axis: AxisEntry | None = None  # what the steps vary; null for the batch size
    fixed: Mapping[str, Count] | None = None  # values of further axes
    batches: tuple[Size, ...] | None = None  # the batch sizes
    batch_from: str | None = None  # source of imported batch sizes
    steps_from: str | None = None  # source of the steps of a recorded program or profile
    device_time_in_steps: Share | None = None  # share of the device time that lies in steps
    protocol: ProtocolEntry | None = None  # how the steps were measured
    unmeasured: tuple[UnmeasuredEntry, ...] | None = None  # batch sizes without a measurement
    warnings: tuple[str, ...] | None = None  # disturbances that were noticed
    rounds: Count | None = None  # rounds in which every batch size was measured
    elapsed_s: Number | None = None  # time of the measurement, s
    discarded_steps: Count | None = None  # steps that were not used
    torch_device: str | None = None  # device as PyTorch names it
    device: DeviceEntry | None = None  # the device
    device_settings: Mapping[str, Any] | None = None  # its settings, e.g. clocks
    locked_sm_clock_hz: Count | None = None  # clock that Curvescope locked the SMs at, Hz
    memory_limit_bytes: Count | None = None  # memory that the steps could have, B
    host: HostEntry | None = None  # the machine
    versions: Mapping[str, str | None] | None = None  # versions of the libraries
    ceilings: CeilingsEntry | None = None  # measured ceilings
    clocks_missing: str | None = None  # why clocks were not sampled
    energy: EnergyEntry | None = None  # source of the steps' energies
    layer_classes: Mapping[str, str] | None = None  # classes of the layers, by path
    # that ran a user's step beside PyTorch, with their versions
    frameworks: Mapping[str, str | None] | None = None
    # of these, the threads that each computed with on a CPU
    framework_threads: Mapping[str, Count | None] | None = None
    probes: ProbesEntry | None = None  # what was found between the batch sizes
    experiments: tuple[Experiment, ...] | None = None  # experiments on the causes
    # facts on their factors, by scope
    factors: Mapping[str, Mapping[str, FactorFacts]] | None = None
    experiments_wait_for_time: bool | None = None  # whether more time would test more
    experiments_rest: Mapping[str, Any] | None = None  # what it would test
    counters: CountersEntry | None = None  # what hardware counters counted
    flops_counted: tuple[str, ...] | None = None  # precisions whose FLOPs a profile counts
    distributed: RankEntry | None = None  # rank of the process
    measured_together: TogetherEntry | None = None  # versions that were measured together
    # losses of the first steps from one seed, of such a version; null for one that is not finite
    losses: tuple[Annotated[float, Meta(ge=-1e30, le=1e30)] | None, ...] | None = None
    collectors: tuple[Mapping[str, Any], ...] | None = None  # what was recorded in each process
    library: str | None = None  # library of a modelled recording
    framework: str | None = None  # framework whose rules a modelled recording follows
    noise: Number | None = None  # stated error of a table's times, as a share of them
    batch_axis: str | None = None  # axis of the problems of a microbenchmark
    layers: tuple[str, ...] | None = None  # layers with the problems of a microbenchmark
    phase: str | None = None  # phase of these problems
    around: AroundEntry | None = None  # problem of a recorded step among them
    results: tuple[Mapping[str, Any], ...] | None = None  # results of a microbenchmark


_FOUND = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPE = re.compile(rf"\b({'|'.join(_WORDS)})\b")
_LONGEST = 60  # characters of a value in a message
# msgspec looks at the types of the entries at their first use, and crashes where two threads do so
# at once.
_ONE_THREAD = threading.Lock()


def check_entries(meta: Any) -> None:
    """Hold the contents of a `recording.json` to the entries above.

    CurvescopeError: an entry has another type or an impossible value. The message names the entry,
    the type that was expected and the value that is there.
    """
    try:
        with _ONE_THREAD:
            msgspec.convert(meta, RecordingJson)
    except msgspec.ValidationError as error:
        match = _FOUND.fullmatch(str(error))
        assert match is not None
        said = match["what"].replace(" | ", " or ").replace("`", "")
        what = _TYPE.sub(lambda word: _WORDS[word[0]], said)
        what = what[:1].lower() + what[1:]
        where = f"`{match['where']}`" if match["where"] else "its contents"
        there = _there(meta, match["where"])
        raise CurvescopeError(f"{where}: {what}{there}") from error


def _there(meta: Any, where: str | None) -> str:
    """The first entry of a place, in brackets, for a message."""
    name = re.split(r"[.\[]", where)[0] if where else ""
    if not isinstance(meta, dict) or name not in meta:
        return ""
    text = json.dumps(meta[name], default=str)
    return f" ({name} is {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'})"
