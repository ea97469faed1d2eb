"""Recording with NVIDIA's tools, through fakes on PATH that write what the real ones write."""

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.harmless import HIDDEN, mask_path
from curvescope.cli import main
from curvescope.profiling.readers import import_profile
from curvescope.profiling.readers.metrics import choose_metrics, metrics
from curvescope.profiling.recording.store import open_recording

from ..readers.nsys_export import kernel, launch, push_pop, write_export
from ..readers.test_ncu_csv import RAW
from ..readers.test_nvprof import TEXT_METRICS, write_nvprof

REPORT = Path(__file__).parents[2] / "data/profiles/averyclapp_a10g.ncu-rep.gz"
# A tool that notes its arguments, runs the command after its options, and copies a ready file to
# where it was asked to.
FAKE = """#!{python}
import itertools, json, shutil, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)  # it waits for the command to end
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "--help" in arguments:
    print("--cuda-graph-trace= --cpuctxsw=")
    sys.exit()
targets = [a.partition("=")[2] for a in arguments if a.startswith({option!r})]
command = list(itertools.dropwhile(lambda a: a.startswith("-") or a in ("profile", "export"), arguments))
code = 0
if command and arguments[0] != "export":
    code = subprocess.Popen(command).wait()
if targets and {ready!r}:
    shutil.copy({ready!r}, targets[0] + {suffix!r})
elif {ready!r}:
    sys.stdout.write(open({ready!r}).read())
sys.exit(code)
"""  # noqa: E501


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a tool on PATH; returns what it was called with so far."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def install(name, option, ready, suffix=""):
        log = tmp_path / f"{name}.log"
        program = folder / name
        text = FAKE.format(
            python=sys.executable,
            log=str(log),
            option=option,
            ready=str(ready or ""),
            suffix=suffix,
        )
        program.write_text(text)
        program.chmod(0o755)
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return install


@pytest.fixture
def export(tmp_path):
    ranges, launches = [push_pop("step 1", 0, 90), push_pop("layer:fc1", 10, 50)], [launch(1, 20)]
    return write_export(
        tmp_path / "ready.sqlite", ranges=ranges, launches=launches, kernels=[kernel(1, 30, 60)]
    )


COMMAND = [sys.executable, "-c", "print('ran'); raise SystemExit(3)"]


def test_nsys_traces_cuda_and_nvtx_and_is_imported(fake, export, tmp_path, capfd):
    calls = fake("nsys", "--output=", export, ".sqlite")
    target = tmp_path / "r"
    assert main(["record", "--with", "nsys", "--at", "8", "-o", str(target), "--", *COMMAND]) == 3
    *_, arguments = calls()
    assert arguments[0] == "profile"
    assert {
        "--trace=cuda,nvtx",
        "--export=sqlite",
        "--cuda-graph-trace=node",
        "--cpuctxsw=none",
    } <= set(arguments)
    assert arguments[-3:] == COMMAND
    recording = open_recording(target)
    assert recording.frame("kernels")["layer"].tolist() == ["fc1"]
    masked = [mask_path(sys.executable), "-c", HIDDEN]
    assert (recording.meta["recorder"], recording.meta["argv"]) == ("nsys", masked)
    assert recording.meta["batches"] == [8]
    captured = capfd.readouterr()
    assert captured.out == "ran\n"
    said = " ".join(captured.err.split())  # sentences wrap between words
    assert re.match(
        r"curvescope: A step of batch 8 takes [^:]* ms; .*fc1[^:]*\. .*\b1 kernel, ", said
    )


def test_ncu_measures_what_the_columns_need(fake, tmp_path):
    (tmp_path / "ready.csv").write_text(RAW)
    calls = fake("ncu", "--log-file=", tmp_path / "ready.csv")
    assert main(["record", "--with", "ncu", "-o", str(tmp_path / "r"), "--", *COMMAND]) == 3
    ((*options, _, _, _),) = calls()
    asked = (
        next(o for o in options if o.startswith("--metrics=")).removeprefix("--metrics=").split(",")
    )
    assert {
        "dram__bytes.sum",
        "lts__t_bytes.sum",
        "l1tex__t_bytes.sum",
        "gpu__time_duration.sum",
    } <= set(asked)
    recording = open_recording(tmp_path / "r")
    assert recording.frame("kernels")["dram_bytes"].iloc[0] == 2_001_500
    # As in normal steps: by default ncu locks the clocks, and flushes the caches before each
    # kernel.
    assert {"--clock-control=none", "--cache-control=none"} <= set(options)
    assert (recording.meta["clock_control"], recording.meta["cache_control"]) == ("none", "none")


@pytest.mark.slow
def test_nvprof_records_a_timeline_or_metrics(fake, tmp_path):
    calls = fake("nvprof", "--export-profile=", write_nvprof(tmp_path / "ready", 12))
    assert (
        main(["record", "--with", "nvprof", "-o", str(tmp_path / "timeline"), "--", *COMMAND]) == 3
    )
    assert open_recording(tmp_path / "timeline").frame("kernels")["layer"].tolist() == [
        "fc1",
        "fc1",
    ]
    assert not any("--metrics" in argument for argument in calls()[0])
    (tmp_path / "ready.txt").write_text(TEXT_METRICS)
    calls = fake("nvprof", "--log-file=", tmp_path / "ready.txt")
    assert (
        main(
            [
                "record",
                "--with",
                "nvprof",
                "--metrics",
                "-o",
                str(tmp_path / "metrics"),
                "--",
                *COMMAND,
            ]
        )
        == 3
    )
    assert any(a.startswith("--metrics=dram_read_bytes,dram_write_bytes") for a in calls()[-1])
    assert (
        open_recording(tmp_path / "metrics").frame("kernels")["dram_bytes"].tolist() == [32320] * 3
    )


@pytest.mark.parametrize("tool", ["nsys", "ncu", "nvprof"])
def test_an_absent_tool_is_said_with_how_to_get_it(tool, tmp_path, refusal_of, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"{tool} is not on PATH: install" in refusal_of(
        "record", "--with", tool, "-o", tmp_path / "r", "--", *COMMAND
    )
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            "NVreg_RestrictProfilingToAdminUsers",
        ),
        ("", "ncu wrote no profile"),
    ],
)
def test_a_tool_that_fails_is_said_with_a_remedy(fake, printed, words, tmp_path, refusal_of):
    (tmp_path / "ready.csv").write_text(printed)
    fake("ncu", "--log-file=", tmp_path / "ready.csv")
    assert words in refusal_of("record", "--with", "ncu", "-o", tmp_path / "r", "--", *COMMAND)
    assert not (tmp_path / "r").exists()


def test_a_taken_folder_is_refused_before_anything_runs(fake, export, tmp_path, capfd):
    fake("nsys", "--output=", export, ".sqlite")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine").touch()
    assert main(["record", "--with", "nsys", "-o", str(tmp_path / "r"), "--", *COMMAND]) == 2
    captured = capfd.readouterr()
    assert "is not empty" in captured.err
    assert captured.out == ""


@pytest.mark.slow
def test_ctrl_c_keeps_what_the_tool_wrote(fake, export, tmp_path):
    fake("nsys", "--output=", export, ".sqlite")
    waiting = """
import sys
try:
    print("running", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    pass
"""
    target = tmp_path / "r"
    words = [
        sys.executable,
        "-m",
        "curvescope.cli",
        "record",
        "--with",
        "nsys",
        "-o",
        str(target),
        "--",
    ]
    with subprocess.Popen(
        [*words, sys.executable, "-c", waiting],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout.readline() == b"running\n"
        # As a terminal does: to the recorder, the tool and the command alike.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 0  # the exit code of the command
    assert len(open_recording(target).frame("kernels")) == 1


def test_a_report_is_exported_by_the_tool_that_can_read_it(fake, export, tmp_path):
    report = tmp_path / "some.file"
    report.write_bytes(b"\x00\x01\x02report" * 100)
    calls = fake("nsys", "--output=", export)
    assert len(open_recording(import_profile(report, tmp_path / "r").path).frame("kernels")) == 1
    ((*_, given),) = calls()
    assert given == str(report)


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("ncu_report"), reason="ncu-report is not installed"
)
def test_a_report_is_read_by_the_module_of_nsight_compute(monkeypatch, tmp_path):
    """Products of two 1024 x 1024 matrices on an A10G; the report has rates, so work is rate x
    time.
    """
    monkeypatch.setenv("PATH", "/nowhere")
    recording = open_recording(import_profile(REPORT, tmp_path / "r").path)
    kernels = recording.arrow("kernels").to_pylist()
    assert [kernel["flops_executed"] for kernel in kernels] == [2 * 1024**3] * 4
    first = kernels[0]
    assert (first["name"], first["duration_ns"], first["start_ns"]) == (
        "one_blocktiling",
        431_648,
        None,
    )
    assert first["dram_bytes"] == round(47.911631699903625 * 431_648)  # GB/s x ns
    assert (first["grid_x"], first["block_x"], first["registers_per_thread"]) == (16, 512, 51)
    assert (recording.meta["device"]["name"], recording.meta["device"]["sm_count"]) == (
        "NVIDIA A10G",
        80,
    )
    assert recording.meta["lost"] == {}


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (b"NVID\x01\x00", "nsys export --type sqlite FILE"),
        (b"NVR\x00\x01", "ncu --import FILE --csv --page raw"),
        (b"", "binary file of no known kind"),
    ],
)
def test_a_report_that_no_tool_reads_names_the_command_that_exports_it(
    begin, words, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "p").write_bytes(begin + bytes(range(256)) * 8)
    with pytest.raises(CurvescopeError, match=words):
        import_profile(tmp_path / "p", tmp_path / "r")


def test_every_wanted_metric_is_of_the_table():
    for tool in ("nvprof", "ncu"):
        names = {name for metric in metrics() if metric.tool == tool for name in metric.names}
        assert set(choose_metrics(tool)) <= names
        assert not [name for name in choose_metrics(tool) if shlex.quote(name) != name]
