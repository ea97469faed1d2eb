"""The trace schema, written once as data: validators, the store and the reference page are
generated from it.

Missing is null, never 0 or -1; time is int64 nanoseconds; every column with a number has a unit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

# A reader takes its own version only: no release wrote version 1, which had other names.
SCHEMA_VERSION = 2

OPERATOR_MODE = "operator"  # mode of the steps of a benchmark
INPUT, FORWARD, BACKWARD, OPTIMIZER = ("input", "forward", "backward", "optimizer")
SAMPLED = "sampler"  # source of functions that a sampler saw from beside the program
SOURCES = (
    *("cupti", "nvtx", "nsys", "ncu", "nvprof"),
    *("torch", "onednn", "mkl", "tensorflow", "jax", "python", "model", "bench", SAMPLED),
)


class Aggregate(Enum):
    """How the values of a column are combined when rows are grouped."""

    SUM = "sum"  # extensive: summed
    # a time that may overlap: shared out first (analysis.exclusive), then summed
    EXCLUSIVE = "exclusive"
    MEAN = "mean"  # intensive: averaged, weighted by duration
    KEY = "key"  # identifies the row: grouped by, never combined


_MOST_NS = 1 << 50
_LATEST_NS = 1 << 62
_MOST = 1 << 60


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, whether null is allowed, its unit ("" for none), aggregation, a
    sentence.
    """

    name: str
    dtype: pa.DataType
    nullable: bool
    unit: str
    aggregate: Aggregate
    doc: str
    least: int | None = None  # least possible number; None for the usual one, see `bounds`

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The numbers that a column can hold, both ends included; None for any, e.g. ids and
        addresses.

        What lies outside is no measurement, and would make sums overflow: 2^50 ns are thirteen
        days.
        """
        if self.name == "batch":
            return 1, 1 << 40
        if self.name == "start_ns":
            return -_LATEST_NS, _LATEST_NS
        if self.aggregate is Aggregate.KEY or not _is_number(self.dtype):
            return None
        if pa.types.is_floating(self.dtype):
            return -1e30, 1e30
        return self.least or 0, _MOST_NS if self.unit == "ns" else _MOST


@dataclass(frozen=True)
class Table:
    """One table of a recording."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(c.name, c.dtype, c.nullable) for c in self.columns])

    def only(self, names: Collection[str] | None) -> Table:
        """The table with only these columns; with all if `names` is None."""
        if names is None:
            return self
        return replace(self, columns=tuple(c for c in self.columns if c.name in names))


_TEXT = pa.string()
_I64 = pa.int64()
_I32 = pa.int32()
_F64 = pa.float64()


def _key(
    name: str, dtype: pa.DataType, doc: str, *, nullable: bool = True, unit: str = ""
) -> Column:
    return Column(name, dtype, nullable, unit, Aggregate.KEY, doc)


def _sum(name: str, unit: str, doc: str) -> Column:
    return Column(name, pa.int64(), True, unit, Aggregate.SUM, doc)


def _mean(name: str, unit: str, doc: str, dtype: pa.DataType = _I64) -> Column:
    return Column(name, dtype, True, unit, Aggregate.MEAN, doc)


_START = _key(
    "start_ns",
    _I64,
    "Start on the recording's host clock; null if the profile has no times.",
    unit="ns",
)
_DURATION = Column(
    "duration_ns",
    _I64,
    True,
    "ns",
    Aggregate.EXCLUSIVE,
    "End minus start; null if the profile has no times.",
)
_PROCESS = _key("process", _I64, "Process id, or rank if several were merged; null if unknown.")
_THREAD = _key("thread", _I64, "Thread id in the process.")
_DEVICE = _key("device", _I32, "Index of the GPU; null for the CPU.")
_STREAM = _key(
    "stream", _I64, "Stream of the device, or thread on the CPU: rows of one stream do not overlap."
)
_CORRELATION = _key(
    "correlation_id", _I64, "Joins device work to the host call that launched it, per process."
)
_STEP = _key("step", _I64, "The `steps` row this belongs to; null outside every step.")
_PHASE = _key(
    "phase",
    _TEXT,
    "forward, backward or optimizer; input while a batch is loaded; null if unknown.",
)
_LAYER = _key(
    "layer",
    _TEXT,
    "Module path of the layer, e.g. `conv3_1` or `encoder.layer.3`; null if unknown.",
)
_SOURCE = _key("source", _TEXT, "Recorder of the row.", nullable=False)

# Columns of kernels in groups: launch, compiler and graph, collective, work.
_LAUNCH = (
    *(_key(f"grid_{axis}", _I32, f"Blocks in {axis}.") for axis in "xyz"),
    *(_key(f"block_{axis}", _I32, f"Threads per block in {axis}.") for axis in "xyz"),
    _key("registers_per_thread", _I32, "Registers per thread."),
    _key("shared_memory_bytes", _I64, "Static plus dynamic shared memory of a block.", unit="B"),
)
_COMPILED = (
    _key(
        "fused",
        _TEXT,
        "Operators that a compiler fused into the kernel, as JSON `[[layer, operator, share], "
        "...]`; a share is modelled from the bytes of each, or equal if unknown; null for "
        "other kernels.",
    ),
    _key(
        "compiled_warps",
        _I32,
        "Warps of a block that the kernel was compiled for (Triton's num_warps).",
    ),
    _key("pipeline_stages", _I32, "Stages of the software pipeline (Triton's num_stages)."),
    _key("graph_id", _I64, "CUDA graph execution the kernel came from; null outside graphs."),
    _key(
        "graph_node_id",
        _I64,
        "Node of that graph; kernels of one node have the layer of its capture.",
    ),
)
_COLLECTIVE = (
    _key(
        "communicator",
        _TEXT,
        "Group of ranks of a collective, as its framework names it; else null.",
    ),
    _key(
        "collective",
        _TEXT,
        "Collective as its framework names it, in NCCL's spelling, e.g. AllReduce; else null.",
    ),
    _key("group_size", _I32, "Number of ranks in the group of a collective; else null."),
    _sum(
        "message_bytes",
        "B",
        "Message of a collective as nccl-tests counts it: the larger of a rank's input and "
        "output; else null.",
    ),
)
_COUNTS = (
    _sum(
        "flops",
        "FLOP",
        "Work of the direct algorithm, from shapes; an operator call counts once, on the "
        "kernels that do it.",
    ),
    _sum(
        "bytes_compulsory",
        "B",
        "Each operand moved once, from shapes; an operator call counts once, on the kernels "
        "that do it.",
    ),
    _sum("dram_bytes", "B", "Measured DRAM traffic, read plus written."),
    _sum("l2_bytes", "B", "Measured L2 traffic, read plus written."),
    _sum("l1_bytes", "B", "Measured requests to L1, read plus written."),
    _sum("flops_executed", "FLOP", "Measured FLOPs of the algorithm that ran."),
    _sum(
        "sm_cycles",
        "cycles",
        "Measured cycles of the SM clock from the kernel's begin to its end.",
    ),
)

KERNELS = Table(
    "kernels",
    "Every kernel. On a CPU: oneDNN primitives, MKL calls, or the host operator's own time if "
    "there are none. Without operators too: the own time of sampled functions.",
    (
        _key("name", _TEXT, "Kernel name from the profiler, demangled.", nullable=False),
        _START,
        _DURATION,
        _PROCESS,
        _DEVICE,
        _STREAM,
        _CORRELATION,
        *_LAUNCH,
        _STEP,
        _PHASE,
        _LAYER,
        _key("op", _TEXT, "Framework operator that launched the kernel, e.g. `aten::convolution`."),
        _key(
            "part",
            _I32,
            "Position of the row among those of one call of a host operator, which other "
            "operators interrupt, from 0; null for other rows. A call counts once, by its first "
            "row.",
        ),
        _key(
            "op_path",
            _TEXT,
            "Operators around the launch, from `op` inwards, joined by ` > `; null if unknown.",
        ),
        _key(
            "op_shapes",
            _TEXT,
            "Shapes of the tensors that `op` takes, e.g. `8x3x32x32, 16x3x3x3`; null if unknown.",
        ),
        *_COMPILED,
        *_COLLECTIVE,
        *_COUNTS,
        _mean("achieved_occupancy", "1", "Measured active warps over the SM's maximum.", _F64),
        _mean(
            "tensor_pipe_use",
            "1",
            "Measured share of the cycles in which the tensor pipes were active.",
            _F64,
        ),
        _mean(
            "sm_use", "1", "Measured throughput of the SMs over the most that they sustain.", _F64
        ),
        _mean(
            "memory_use",
            "1",
            "The same of the busiest unit of the memory: L1, L2, DRAM, or between them.",
            _F64,
        ),
        _mean("dram_use", "1", "The same of DRAM.", _F64),
        _mean("l2_use", "1", "The same of L2.", _F64),
        _mean(
            "issue_cycles",
            "cycles",
            "Measured cycles of a warp from one instruction to the next.",
            _F64,
        ),
        _mean(
            "stall_memory", "cycles", "Those in which it waits for global or local memory.", _F64
        ),
        _mean(
            "stall_memory_queue", "cycles", "Those for room in the queue of such accesses.", _F64
        ),
        _mean("stall_shared", "cycles", "Those for shared memory.", _F64),
        _mean(
            "stall_shared_queue", "cycles", "Those for room in the queue of such accesses.", _F64
        ),
        _mean("stall_barrier", "cycles", "Those for the other warps of its block.", _F64),
        _mean("stall_math", "cycles", "Those for a busy pipe of arithmetic.", _F64),
        _mean(
            "stall_dependency",
            "cycles",
            "Those for its own last instruction, by its fixed latency.",
            _F64,
        ),
        _mean("stall_code", "cycles", "Those for instructions that are not in the cache.", _F64),
        _key("source", _TEXT, f"Recorder of the row: {', '.join(SOURCES)}.", nullable=False),
    ),
)

RANGES = Table(
    "ranges",
    "NVTX ranges and marks, and the profiler's own annotations.",
    (
        _key("name", _TEXT, "Message of the range.", nullable=False),
        _START,
        _DURATION,
        _PROCESS,
        _THREAD,
        _key("domain", _TEXT, "NVTX domain; null for the default one."),
        _key("category", _TEXT, "NVTX category."),
        _key("kind", _TEXT, "push_pop, start_end or mark.", nullable=False),
        _key("color_argb", _I64, "Colour as 0xAARRGGBB."),
        _key("payload", _TEXT, "NVTX payload as text."),
        _STEP,
        _SOURCE,
    ),
)

MEMORY = Table(
    "memory",
    "Allocations, memcpy and memset.",
    (
        _key("kind", _TEXT, "allocate, free, memcpy or memset.", nullable=False),
        _key("memcpy_kind", _TEXT, "HtoD, DtoH, DtoD, HtoH or PtoP; null for other rows."),
        _key(
            "host_memory",
            _TEXT,
            "Memory of the host that a memcpy reads or writes: pageable, pinned or managed; null "
            "if unknown, and for other rows.",
        ),
        _START,
        _DURATION,
        _sum("bytes", "B", "Bytes of the operation."),
        _PROCESS,
        _DEVICE,
        _STREAM,
        _CORRELATION,
        _key("address", _I64, "Address as a signed 64-bit number."),
        _STEP,
        _PHASE,
        _LAYER,
        _SOURCE,
    ),
)

API_CALLS = Table(
    "api_calls",
    "CUDA runtime and driver API calls on the host: launches, memcpy, synchronisation.",
    (
        _key("name", _TEXT, "API function, e.g. `cudaLaunchKernel`.", nullable=False),
        _START,
        _DURATION,
        _PROCESS,
        _THREAD,
        _CORRELATION,
        _key("return_value", _I32, "CUDA error code; 0 is success."),
        _key(
            "waits_for",
            _TEXT,
            "event, stream, context or stream_event; null for calls that do not wait.",
        ),
        _key("stream", _I64, "Stream that the call waits for; else null."),
        _STEP,
        _SOURCE,
    ),
)

CLOCKS = Table(
    "clocks",
    "Samples of clocks, power, temperature and throttling during the run.",
    (
        _START,
        _DEVICE,
        _mean("sm_clock_hz", "Hz", "SM clock, or the mean core clock of a CPU."),
        _mean("memory_clock_hz", "Hz", "Memory clock."),
        _mean(
            "power_w", "W", "Board power; NVML averages it over a second on GPUs after GA100.", _F64
        ),
        _mean("temperature_c", "°C", "Temperature of the device.", _F64),
        _key("throttle_reasons", _TEXT, "Names joined by `|`; empty for none, null if unreadable."),
        _mean("load", "1", "Utilisation of a GPU (0 to 1), or load average of a CPU.", _F64),
    ),
)

_STEP_RESOURCES = (
    _mean(
        "peak_memory_bytes",
        "B",
        "Peak over one visit's steps: tensors of the CUDA allocator, or resident memory of a CPU "
        "process.",
    ),
    _mean(
        "reserved_memory_bytes",
        "B",
        "Peak over one visit's steps of the memory reserved by the CUDA allocator.",
    ),
    _mean(
        "allocator_retries",
        "",
        "Number of times in the visit that the CUDA allocator freed its cache and retried.",
    ),
    _mean(
        "cpu_time_ns", "ns", "CPU time of all threads of the process in the step, user and system."
    ),
    _mean(
        "system_time_ns",
        "ns",
        "Part of cpu_time_ns in the kernel (e.g. page faults); sampled, unreliable for single "
        "steps.",
    ),
    _mean("page_faults", "", "Pages that the operating system mapped for the process in the step."),
    _mean(
        "major_faults",
        "",
        "Those of the page faults that waited for a page from a disk, e.g. a swapped one.",
    ),
    _sum(
        "energy_uj",
        "µJ",
        "Energy of the device in the step: its share by duration of the visit's, whose source "
        "`recording.json` names.",
    ),
    _mean(
        "run_queue_wait_ns",
        "ns",
        "Time that threads waited in a run queue for a core, summed over threads.",
    ),
)

STEPS = Table(
    "steps",
    "Every timed step; nothing is averaged.",
    (
        _key("step", _I64, "Number of the step, unique in the recording.", nullable=False),
        _key("batch", _I64, "Batch size of the step; null if unknown.", unit="samples"),
        _key("round", _I32, "Round (pass over all batch sizes) of the step.", nullable=False),
        _key("index", _I32, "Position of the step in its round and batch size.", nullable=False),
        _key(
            "mode",
            _TEXT,
            "What one step runs: training, forward, forward+backward or operator; of an inference "
            "server prefill, decode or mixed; null if unknown.",
        ),
        _START,
        Column(
            "duration_ns",
            _I64,
            False,
            "ns",
            Aggregate.SUM,
            "Wall time of the step, including its device work.",
            least=1,
        ),
        _key(
            "profiled",
            pa.bool_(),
            "Whether the step was profiled; profiled steps give terms, never T(b).",
            nullable=False,
        ),
        *_STEP_RESOURCES,
        _mean(
            "sm_clock_hz",
            "Hz",
            "SM clock of a GPU: its cycles over the unprofiled step, median of the SMs; null "
            "below 0.2 ms.",
        ),
        _mean(
            "reference_ns",
            "ns",
            "Time of a reference of constant work, fresh memory and products, beside the step on "
            "a CPU: mean of before and after it; null where it did not run.",
        ),
        _key(
            "marked",
            pa.bool_(),
            "Whether marks noted the borders of layers in the unprofiled step, in order as in the "
            "table `marks`; then T(b) is of such steps. Null for no.",
        ),
        _key(
            "throttle_reasons",
            _TEXT,
            "Reasons in samples of the visit that hold the clock down; null if unknown.",
        ),
        _PROCESS,
        _key("problem", _TEXT, "Name of the problem, if the recording has several; else null."),
        _key("device_name", _TEXT, "Device of the step, if the recording has several."),
        _key(
            "averaged_steps",
            _I64,
            "Number of steps in the row, if the source publishes only a mean or median.",
        ),
        _key(
            "tokens", _I64, "Tokens that a step of an inference server computes; null if unknown."
        ),
        _key(
            "context_tokens",
            _I64,
            "Tokens that these attend to, summed over the requests; null if unknown.",
        ),
        _key(
            "graph_batch",
            _I64,
            "Batch size of the CUDA graph that the step replays; null if unknown.",
        ),
        _key(
            "compiled_code",
            _TEXT,
            "What the step runs of torch.compile's code: `own`, compiled when this size ran "
            "first; `shared`, compiled at another size, so of dynamic shapes; `none`, as a "
            "function had as many versions as torch allows; null if nothing is compiled or it is "
            "unknown.",
        ),
        _key(
            "relative_spread",
            _F64,
            "Published standard deviation of one step divided by its time.",
            unit="1",
        ),
    ),
)

OPERATORS = Table(
    "operators",
    "Outermost operator calls of a step, to run them again alone; equal calls of a batch size are "
    "one row.",
    (
        _key("batch", _I64, "Batch size of the step; null if unknown.", unit="samples"),
        _LAYER,
        _PHASE,
        _key("op", _TEXT, "Operator of the framework, e.g. `aten::linear`.", nullable=False),
        _key(
            "arguments",
            _TEXT,
            "Arguments as JSON, see `profiling.recording.operators`.",
            nullable=False,
        ),
        Column("calls", _I64, False, "", Aggregate.SUM, "Equal calls in one step."),
        Column(
            "duration_ns",
            _I64,
            True,
            "ns",
            Aggregate.SUM,
            "Time of all these calls in one profiled step; on a GPU that of their kernels.",
        ),
        _key(
            "kernels",
            _TEXT,
            "Names of the kernels that the calls ran, longest first, joined by ` | `; null if "
            "none is known.",
        ),
        _key(
            "position",
            _I64,
            "Position of the first of the calls among the step's operators.",
            nullable=False,
        ),
        _sum(
            "page_faults",
            "",
            "Page faults of the process inside these calls, in one step on a CPU; null if not "
            "counted.",
        ),
        _key(
            "numbers",
            _TEXT,
            "What the numbers in the operands were like in one step on a CPU, as JSON, see "
            "`profiling.recording.operand_numbers`; null if unknown.",
        ),
        _SOURCE,
    ),
)

MARKS = Table(
    "marks",
    "Steps without the profiler that note the time at the borders of layers and phases: the time "
    "between the borders.",
    (
        _key("batch", _I64, "Batch size of the step; null if unknown.", unit="samples"),
        _key("round", _I32, "Round (pass over all batch sizes) of the step.", nullable=False),
        _key(
            "index",
            _I32,
            "Position of the step among the marked ones of its round and batch size.",
            nullable=False,
        ),
        _LAYER,
        _key("phase", _TEXT, "input, forward, backward or optimizer.", nullable=False),
        Column(
            "duration_ns",
            _I64,
            False,
            "ns",
            Aggregate.SUM,
            "Time between borders; without the work of the marks.",
        ),
        _sum("marks", "", "Marks before and after this time, each counted for half."),
    ),
)

LINES = Table(
    "lines",
    "Where in the program one step of each batch size was, seen in a slow step; only shares of "
    "its times are used.",
    (
        _key("batch", _I64, "Batch size of the step; null if unknown.", unit="samples"),
        _LAYER,
        _PHASE,
        _key("op", _TEXT, "Outermost operator; null for time in which none ran."),
        _key(
            "file",
            _TEXT,
            "The innermost file on the stack that belongs to no installed package, relative to "
            "the working directory; without one, the innermost of a package other than torch, "
            "relative to the packages.",
            nullable=False,
        ),
        _key(
            "line",
            _I32,
            "Line in the file; of a backward pass that of the forward operator.",
            nullable=False,
        ),
        _key(
            "text",
            _TEXT,
            "Text of the line when the step ran, cut off at 200 characters and with secrets "
            "hidden.",
        ),
        _sum("calls", "", "Calls of the operator; null where none ran."),
        Column(
            "duration_ns",
            _I64,
            False,
            "ns",
            Aggregate.SUM,
            "Time of the calls, or of samples without operators.",
        ),
    ),
)

FUNCTIONS = Table(
    "functions",
    "Functions of the program on the host, from call stacks of the profiler, those that took at "
    "least 0.1 ms; or from a sampler beside it.",
    (
        _key(
            "name",
            _TEXT,
            "File without its folders, line and function, e.g. `data.py(7): load`.",
            nullable=False,
        ),
        _START,
        _DURATION,
        _PROCESS,
        _THREAD,
        _SOURCE,
    ),
)

PEAKS = Table(
    "peaks",
    "What held memory when most was allocated, in one step of each batch size; rows but `cached` "
    "add up to the peak.",
    (
        _key("batch", _I64, "Batch size of the step; null if unknown.", unit="samples"),
        _key(
            "kind",
            _TEXT,
            "parameters (also buffers), gradients, optimizer state, input, activations, "
            "activation gradients (all that a backward pass allocated), workspace (freed inside "
            "its operator, or by the optimizer), other (from before the step, or unknown), not "
            "used in the step, or cached (kept by the allocator, but no tensor's).",
            nullable=False,
        ),
        _LAYER,
        _key(
            "phase",
            _TEXT,
            "Phase that allocated it; null of parameters, gradients, optimizer state and unknown.",
        ),
        _key("op", _TEXT, "Outermost operator that allocated it; null from before the step."),
        _key(
            "file",
            _TEXT,
            "File of the program that called the operator, as in `lines`; null if unknown.",
        ),
        _key("line", _I32, "Line in the file."),
        _sum("bytes", "B", "Memory of the rows' storages, as the allocator counts it."),
        _sum("tensors", "", "Number of storages; null of cached memory."),
        _key(
            "makes_peak",
            pa.bool_(),
            "Whether the last allocation before the peak is among them.",
            nullable=False,
        ),
        _mean(
            "available_bytes",
            "B",
            "Memory that the step could have had at most when it was measured.",
        ),
    ),
)

EXPERIMENTS = Table(
    "experiments",
    "Timed runs of experiments that test causes; `recording.json` describes each experiment.",
    (
        _key("experiment", _I64, "Number of the experiment in `recording.json`.", nullable=False),
        _key("factor", _TEXT, "Name of the changed factor; null for runs without a change."),
        _key("batch", _I64, "Batch size of the run.", nullable=False, unit="samples"),
        _key(
            "round",
            _I32,
            "Round (pass over all factors and batch sizes) of the run.",
            nullable=False,
        ),
        _key(
            "index",
            _I32,
            "Position of the run in its round, factor and batch size.",
            nullable=False,
        ),
        _START,
        Column(
            "duration_ns",
            _I64,
            False,
            "ns",
            Aggregate.SUM,
            "Time of one step, or of a term's operators in a step.",
        ),
        *_STEP_RESOURCES,
        _PROCESS,
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        KERNELS,
        RANGES,
        MEMORY,
        API_CALLS,
        CLOCKS,
        STEPS,
        MARKS,
        OPERATORS,
        LINES,
        FUNCTIONS,
        PEAKS,
        EXPERIMENTS,
    )
}


def conform(table: Table, data: pa.Table) -> pa.Table:
    """Bring data into the form of the table: its columns in order, absent nullable columns filled
    with null.

    Text stays dictionary-encoded. ValueError: a column is unknown, or a required one absent or
    null, or a cast loses data, or a number is out of its bounds.
    """
    there = set(data.column_names)
    unknown = there - {c.name for c in table.columns}
    if unknown:
        raise ValueError(f"{table.name} does not have the columns {', '.join(sorted(unknown))}")
    arrays = []
    for column in table.columns:
        if column.name in there:
            array = data.column(column.name)
            if array.type not in (column.dtype, pa.dictionary(pa.int32(), column.dtype)):
                array = array.cast(column.dtype)
        else:
            array = pa.nulls(data.num_rows, column.dtype)
        if not column.nullable and array.null_count:
            raise ValueError(
                f"{table.name}.{column.name} must not be null; {array.null_count} rows are"
            )
        _check_numbers(table, column, array)
        arrays.append(array)
    fields = [field.with_type(array.type) for field, array in zip(table.arrow, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, table.arrow.metadata))


def _check_numbers(table: Table, column: Column, values: pa.ChunkedArray) -> None:
    """Refuse numbers out of a column's bounds, also NaN, and a total that no 64-bit
    number holds.
    """
    if column.bounds is None or values.null_count == len(values):
        return
    least, most = column.bounds
    ends = pc.min_max(values)
    low = ends["min"].as_py()
    high = ends["max"].as_py()
    has_nan = pa.types.is_floating(column.dtype) and pc.any(pc.is_nan(values)).as_py()
    if has_nan or not least <= low <= high <= most:
        right = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
        row = pc.index(pc.fill_null(right, True), False).as_py()
        raise ValueError(
            f"{table.name}.{column.name} is {values[row]} in row {row}, and can be {least:,} to "
            f"{most:,}"
        )
    if column.name not in ("batch", "start_ns") and high * len(values) > most:
        total = pc.sum(values.cast(pa.float64(), safe=False)).as_py()
        if total > most:
            raise ValueError(
                f"{table.name}.{column.name} adds up to {total:.3g} {column.unit}, which nothing "
                "reaches"
            )
