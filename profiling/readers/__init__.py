"""Readers of other profilers' files.

The content decides on the format; a new format is a module and a line here.

A reader module defines `NAME`, `recognises(source) -> bool`, and `read(source, writer, options)`,
which writes tables through the `RecordingWriter`, some rows at a time, and raises `CurvescopeError`
for contents that it cannot read.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...base import plugins
from ...base.errors import CurvescopeError
from ..attribution.profile import Options as Options
from ..recording.inside import remove_on_failure
from ..recording.remote_store import AnyPath
from ..recording.schema import TABLES
from ..recording.store import STEP, RecordingWriter, new_recording_path, open_recording
from .source import Source

# how the reports of Nsight Systems and Nsight Compute begin
_NSYS_REPORT = b"NVID"
_NCU_REPORT = b"NVR\0"
# Errors of readers whose file has values of the wrong type.
_UNREADABLE = (
    pa.ArrowException,
    AttributeError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
# In this order; the first that recognises the file reads it. Text is searched longer than JSON, so
# it comes later.
READERS = (
    "nsys_sqlite",
    "nvprof_sqlite",
    "speedscope_json",
    "tensorflow_json",
    "pytorch_json",
    "serving_results",
    "ncu_csv",
    "server_log",
    "llama_bench",
    "nvprof_text",
    "xspace_pb",
    "memory_snapshot",
    "time_table",
)


@dataclass(frozen=True)
class ImportDocument:
    """A finished import: what `import_profile` returns, and `curvescope import --json` prints."""

    path: str  # folder or URL of the recording
    format: str  # name of the file's format
    rows: dict[str, int]  # rows by table
    lost: dict[str, dict[str, Any]]  # count, severity and sentence by name
    # data that the profiler did not record, by name, with a sentence
    missing: dict[str, str] = field(default_factory=dict)
    steps_from: str | None = None  # source of the steps; None for formats without steps
    # share of the device time that lies in steps, 0 to 1; None without times or steps
    device_time_in_steps: float | None = None
    batch_from: str | None = None  # source of the batch sizes; None if unknown
    unit: str = STEP  # what the rows of `steps` are of: step, or recording where no step is known


def import_profile(
    source: Path,
    target: AnyPath | None = None,
    options: Options | None = None,
    meta: Mapping[str, Any] | None = None,
) -> ImportDocument:
    """Turn a profile, plain or gzip, into a recording, by default in a dated folder under `runs`.

    Neither its name nor any path in it is copied: both may name hosts and people. `meta` has
    further facts about the run, for `recording.json`. Of a file that is refused nothing is left
    behind.
    """
    options = options or Options()
    options.names, options.step_pattern  # noqa: B018 - a wrong pattern is refused before anything is made
    try:
        with _readable(source) as (opened, reader):
            about = {"recording_type": "profile", "imported_from": reader.NAME}
            about |= dict.fromkeys(("network", "device", "batches"))
            writer = RecordingWriter(
                target or new_recording_path("imported"), {**about, **(meta or {})}
            )
            with remove_on_failure(writer.path):
                with writer:
                    reader.read(opened, writer, options)
                    writer.check()
                return describe_import(writer.path)
    except (CurvescopeError, MemoryError, *_UNREADABLE) as error:
        raise CurvescopeError(f"{source}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Why a file cannot be read, a sentence."""
    if isinstance(error, CurvescopeError):
        return str(error)
    if isinstance(error, MemoryError):
        return "reading it takes more memory than there is; import it on a larger machine."
    return f"it holds values that fit no column ({str(error)[:200]}); record it again."


def describe_import(path: AnyPath) -> ImportDocument:
    """Describe a finished import."""
    recording = open_recording(path)
    meta = recording.meta
    rows = {table: recording.count_rows(table) for table in TABLES}
    if recording.on_host:  # a call of an operator may have several rows
        part = recording.arrow("kernels", ["part"])["part"]
        further = pc.sum(pc.greater(part, 0)).as_py()
        rows["kernels"] -= further or 0
    return ImportDocument(
        str(path),
        str(meta.get("imported_from") or "archive"),
        rows,
        meta["lost"],
        meta.get("missing", {}),
        meta.get("steps_from"),
        meta.get("device_time_in_steps"),
        meta.get("batch_from"),
        recording.unit,
    )


@contextmanager
def _readable(path: Path) -> Iterator[tuple[Source, ModuleType]]:
    """The file and its reader; NVIDIA's tools first export a report that only they can read."""
    with ExitStack() as stack:
        source = stack.enter_context(Source(path))
        reader = _reader(source)
        if reader is None and not source.text and source.tables is None:
            from .nsight_reports import convert_report  # late: most files are none of these

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvescope-")))
            report = stack.enter_context(source.on_disk())
            if (converted := convert_report(report, folder)) is not None:
                source = stack.enter_context(Source(converted, source.budget))
                reader = _reader(source)
        if reader is None:
            raise CurvescopeError(_unknown(source))
        yield source, reader


def _reader(source: Source) -> ModuleType | None:
    # Plugins first: a format of theirs may look like one of ours, as most JSON does.
    for plugin in plugins.plugins(plugins.READERS):
        try:
            if plugin.module.recognises(source):
                return plugin.module  # type: ignore[no-any-return]
        except (
            Exception
        ) as error:  # a plugin may raise anything; the other readers still try the file
            plugins.report_broken(
                plugin.name,
                plugin.package,
                f"recognises() failed ({type(error).__name__}: {error})",
            )
    for name in READERS:
        reader = importlib.import_module(f".{name}", __package__)
        if reader.recognises(source):
            return reader
    return None


_COLLAPSED = re.compile(r"(?:[^\n;]{1,300};){1,200}[^\n;]{1,300} \d{1,15}\n")
_MEASURE = (
    "Measure it from outside, with a fixed number of requests in flight: `vllm bench serve "
    "--backend openai-chat --base-url URL --max-concurrency 16 --append-result "
    "--result-filename results.json`, once for each number, is read."
)
_AS_TABLE = (
    "Write the requests in flight and the time of a token into a table (concurrency, TPOT (ms)), "
    "and read that: `curvescope explain FILE`."
)
_ONE_RUN = (
    "the times of one run of llama.cpp, with no requests to compare. Read the table that "
    "`llama-batched-bench -npl 1,2,4,8` or `llama-bench -p 1,2,4,8` prints, or a log of "
    "llama-server."
)
# Logs and results of servers that have no time of a step: what they all have, and what to do.
_SERVERS = (
    ("[GIN] ", f"a log of Ollama, which tells the time of requests and not of tokens. {_MEASURE}"),
    (
        "text_generation_router",
        "a log of text-generation-inference, which does not tell how many requests ran together. "
        f"{_MEASURE}",
    ),
    (
        '"Iteration Counter":',
        "a log of Triton's backend for TensorRT-LLM, which tells the requests of a step and not "
        f"its time. {_MEASURE}",
    ),
    (
        "GenAI-Perf | LLM Metrics",
        "what genai-perf prints, which does not tell how many requests were in flight. Give the "
        "profile_export_genai_perf.json of each concurrency.",
    ),
    (
        "_print_timings:",
        _ONE_RUN,
    ),
    (
        "_perf_context_print:",
        _ONE_RUN,
    ),
    (
        "vLLM API server version",
        "the start of a log of vLLM, without a line on running requests: keep the log while it "
        "serves, without `--disable-log-stats`, best with `--enable-logging-iteration-details`.",
    ),
    (
        "server_args=ServerArgs(",
        "the start of a log of SGLang, without a line on running requests: keep the log while it "
        "serves.",
    ),
    ("token throughput (completion token)", f"what LMDeploy's benchmark prints. {_AS_TABLE}"),
    ("Number of concurrency", f"what EvalScope prints. {_AS_TABLE}"),
    (
        "| Strategy ",
        f"what GuideLLM prints. Give the benchmarks.json that it saves, or: {_AS_TABLE}",
    ),
)


def _unknown(source: Source) -> str:
    """The message for a file without a reader: its apparent format, and the remedy."""
    for word, message in _SERVERS:
        if word in source.text:
            return message
    if source.tables is not None:
        return (
            "a SQLite database, but none of Nsight Systems or nvprof; export with "
            "`nsys export --type sqlite`."
        )
    if _COLLAPSED.match(source.text):
        return (
            "collapsed stacks, whose numbers are counts of samples and no times: "
            "`py-spy record --format speedscope` writes both."
        )
    if source.text.startswith("<?xml"):
        return (
            "an XML file. A Visual Profiler session only names its data: give the file that nvprof "
            "wrote, or record with `nvprof -o FILE`."
        )
    if source.text.startswith("{") and '"[pytorch|profiler|execution_trace|' in source.text:
        return (
            "an execution trace of PyTorch (ExecutionTraceObserver): its operators have no times. "
            "Import the trace that the profiler exported with `export_chrome_trace`."
        )
    if (refusal := importlib.import_module(".time_table", __package__).refusal(source)) is not None:
        return str(refusal)
    if source.text.startswith(("{", "[")):
        return (
            "JSON, but no profile that Curvescope reads; it reads traces of PyTorch, TensorFlow "
            "and JAX, and results of `vllm bench`, SGLang, AIPerf, GuideLLM and `trtllm-bench`."
        )
    if source.head.startswith(_NSYS_REPORT):
        return (
            "a report of Nsight Systems, which only `nsys` reads, and it is not on PATH or refuses "
            "the file: run `nsys export --type sqlite FILE` where the report was made, and import "
            "the .sqlite file."
        )
    if source.head.startswith(_NCU_REPORT):
        return (
            "a report of Nsight Compute that its module does not read: "
            "`pip install 'curvescope[ncu]'`, or run `ncu --import FILE --csv --page raw > "
            "FILE.csv` where the report was made, and import the .csv file."
        )
    if not source.text:
        return (
            "a binary file of no known kind. A report of Nsight Systems or Nsight Compute needs "
            "`nsys` or `ncu` on PATH, or export it where they are: "
            "`nsys export --type sqlite FILE`, `ncu --import FILE --csv`; files of nvprof before "
            "CUDA 5 need `nvprof --csv --print-gpu-trace -i FILE`."
        )
    return (
        "no profile that Curvescope reads: it reads SQLite exports of Nsight Systems, files and "
        "CSV of nvprof, CSV of Nsight Compute, "
        "traces of PyTorch, TensorFlow and JAX (JSON or .xplane.pb), logs of vLLM, SGLang, "
        "TensorRT-LLM and llama.cpp, results of benchmarks of servers, and tables of times whose "
        "first line names a size and a time, e.g. batch and time_ms."
    )
