"""The command line as a user meets it; what measures or is interrupted, in a process of its own."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from curvescope import cli
from curvescope.cli import COMMANDS, main
from curvescope.commands import doctor
from curvescope.gpu_checks import Check
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites import process
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..tables import ask_each
from .recordings import write_planted

USER_MODEL = """
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


def small():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Residual(8),
        Residual(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
"""


@pytest.fixture(autouse=True, scope="module")
def _all_rounds_fit_the_time():
    """However busy the machine is, it makes five rounds of short visits, in one process: their
    number decides what is said.
    """
    quick = replace(PROTOCOLS["quick"], rounds=(4, 5), visit_s=0.02)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, "quick", quick)
        patch.setattr(process, "_ROUNDS", math.inf)
        yield


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "my_model.py").write_text(USER_MODEL)
    return folder


MODEL = ("my_model:small", "--input-shape", "3,16,16")
ENOUGH_TIME = ("--time-limit", "600")


@pytest.fixture(scope="module")
def recorded(workplace, command):
    short = ("--quick", *ENOUGH_TIME, "--probe", "0", "--experiments", "2s")
    return command(
        "diagnose", *MODEL, "--batch", "1,2,4", *short, "-o", "mine", cwd=workplace, code=0
    )


def test_diagnose_prints_the_curve_and_what_to_do_next(recorded):
    out = recorded.stdout
    assert "ms a step" in out
    assert "curvescope explain mine --all" in out
    assert len(out.splitlines()) <= 23
    assert "what fits 10.0 minutes, the largest first, then up to 2 s of experiments" in " ".join(
        recorded.stderr.split()
    )
    assert max(map(len, out.splitlines())) <= 80


def test_explain_splits_any_pair_and_adds_up(recorded, workplace, command):
    done = command("explain", "mine", "--pair", "1,4", "--json", cwd=workplace, code=0)
    document = json.loads(done.stdout)
    (explained,) = document["anomalies"]
    assert explained["functional"]["coefficients"] == [[1, -4.0], [4, 1.0]]
    total = sum(part["value"]["value"] for part in explained["shares"])
    assert total == pytest.approx(explained["value"]["value"], rel=1e-9, abs=1e-9)
    causes = explained["attribution"]["causes"]
    assert sum(cause["amount"] for cause in causes) == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert explained["verdict"]
    labels = [part["label"] for part in explained["shares"]]
    for layer, phase in (
        ("first", "forward"),
        ("second", "backward"),
    ):  # a disturbed one stands by itself
        assert any(
            re.match(rf"\S+\.{layer} \(Conv2d(, 2 times)?\) {phase}", label) for label in labels
        ), labels
    # Slow steps are a term where some were seen: on a busy machine there may be.
    idle, overhead = [label for label in labels if label != "slow steps"][-2:]
    assert idle.startswith("idle")
    assert overhead == "profiling overhead"


def test_runs_lists_recordings(recorded, workplace, command):
    rows = json.loads(command("runs", ".", "--json", cwd=workplace).stdout)["recordings"]
    # other tests record here too, in any order
    (row,) = [row for row in rows if row["path"] == "mine"]
    assert row["status"] == "complete"
    assert row["batches"] == [1, 2, 4]
    assert "my_model:small" in command("runs", ".", cwd=workplace).stdout


@pytest.mark.slow
def test_sweep_measures_several_and_prints_them_side_by_side(workplace, command):
    what = ("--input-shape", "3,16,16", "--batch", "2", "--mode", "forward,training")
    how = ("--quick", *ENOUGH_TIME, "-o", "swept")
    done = command("sweep", "my_model:small", *what, *how, cwd=workplace, code=0)
    assert "Step ms by batch size" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    cells = json.loads(command("compare", "--steps", "swept", "--json", cwd=workplace).stdout)[
        "times"
    ]
    assert [(c["mode"], c["batch"]) for c in cells] == [("forward", 2), ("training", 2)]
    assert all(c["n"] >= 4 and c["low_ms"] <= c["time_ms"] <= c["high_ms"] for c in cells)
    markdown = command("compare", "--steps", "swept", "--format", "markdown", cwd=workplace).stdout
    assert "| my_model:small | training fp32 |" in markdown
    again = command("sweep", "--resume", "swept", "--json", cwd=workplace)
    assert json.loads(again.stdout)["times"] == cells
    command("breakdown", "swept/my_model-small_training_fp32", cwd=workplace, code=0)


@pytest.mark.slow
def test_steps_run_in_ranges_that_a_recorder_sees(workplace, command, capfd):
    step = (
        sys.executable,
        "-m",
        "curvescope.cli",
        "step",
        *MODEL,
        "--batch",
        "2",
        "--steps",
        "2",
        "--warm-up",
        "1",
    )
    command("record", "-o", "recorded_steps", "--", *step, cwd=workplace, code=0)
    assert "step 2: " in capfd.readouterr().out
    ranges = open_recording(workplace / "recorded_steps").frame("ranges")
    of_steps = ranges[ranges["name"] == "curvescope.step:batch size=2"]
    phases = {f"curvescope.phase:{phase}" for phase in ("forward", "backward", "optimizer")}
    for step_range in of_steps.itertuples():
        inside = ranges[
            (ranges["start_ns"] >= step_range.start_ns)
            & (
                ranges["start_ns"] + ranges["duration_ns"]
                <= step_range.start_ns + step_range.duration_ns
            )
        ]
        assert phases <= set(inside["name"])
        layers = set(inside[inside["domain"] == "curvescope"]["name"])
        assert {
            "0",
            "1.first",
            "2.second",
            "5",
            "0 backward",
            "1.first backward",
            "5 backward",
        } <= layers
    assert len(of_steps) == 2


def test_step_times_put_published_figures_under_their_own_device(tmp_path, command):
    write_planted(tmp_path / "r", network="alexnet")
    out = command("compare", "--steps", "r", "--published", cwd=tmp_path).stdout
    assert "GeForce GTX 1080" in out
    assert "Tesla K80" in out
    assert "(published)" in out
    assert "Published times were measured by others on the named device" in out
    assert max(map(len, out.splitlines())) <= 80


def test_networks_lists_what_can_be_measured(tmp_path, command, monkeypatch):
    named = ["vgg_a", "resnet50_v1.5"]  # all take seconds
    monkeypatch.setattr("curvescope.profiling.workload.networks.names", lambda: named)
    rows = {
        row["name"]: row
        for row in json.loads(
            command("doctor", "--list", "networks", "--json", cwd=tmp_path).stdout
        )["networks"]
    }
    assert list(rows) == named
    assert rows["vgg_a"]["parameters"] == 132_863_336
    assert "arXiv:1409.1556" in rows["vgg_a"]["paper"]
    out = command("doctor", "--list", "networks", cwd=tmp_path).stdout
    assert "resnet50_v1.5" in out
    assert max(map(len, out.splitlines())) <= 80


def test_doctor_says_what_is_here(tmp_path, command, monkeypatch):
    found = {
        row["name"]: row["found"]
        for row in json.loads(command("doctor", "--json", cwd=tmp_path).stdout)["checks"]
    }
    assert found["CPU"]
    assert found["PyTorch"]
    assert found["native library"]
    monkeypatch.setenv("PATH", "/nonexistent")
    text = command("doctor", cwd=tmp_path).stdout
    assert "missing" in text
    steps = text.partition("\nNext:\n")[2].splitlines()
    assert any(line.startswith("  curvescope diagnose alexnet --quick  # ") for line in steps)
    assert steps[-1].startswith("  curvescope explain FILE  # ")


def test_doctor_ends_with_a_command_for_each_missing_thing_that_matters():
    install = "pip install 'curvescope[torch]'"
    missing = [
        Check("PyTorch", False, "needed by diagnose", "get it", install),
        Check("nvprof", False, "for Kepler to Volta", "a separate download"),
        Check("CUDA device", False, "none"),
    ]
    first, last = doctor._next_steps(missing)
    assert first == f"{install}  # PyTorch"
    assert last.startswith("curvescope explain FILE")
    here = [Check("PyTorch", True, "2.13"), Check("CUDA device", True, "one")]
    assert "this machine's GPU" in doctor._next_steps(here)[0]


@ask_each(
    ("arguments", "message"),
    [
        (("diagnose", "alexnot"), "did you mean alexnet"),
        (("diagnose",), "Name a network"),
        (("diagnose", "alexnet", "--batch", "0"), "write sizes of at least 1"),
        (
            ("diagnose", "alexnet", "--protocol", "secret"),
            "choose one of default, quick, addfor, dell, dlperf",
        ),
        (("diagnose", "alexnet", "--until", "200%"), "a share of the step time"),
        (("diagnose", "alexnet", "--protocol", "quick:5"), "dell alone takes a number of samples"),
        (("diagnose", "alexnet", "--input-shape", "5"), "alexnet does not take text"),
        (("diagnose", "bert_base", "--input-shape", "513"), "1 to 512 tokens"),
        (("diagnose", "bert_base", "--input-shape", "8,8"), "write a number of tokens"),
        (
            ("diagnose", "alexnet", "--device", "cpu", "--precision", "tf32"),
            "a mode of CUDA devices",
        ),
        (("sweep",), "Name the networks to sweep"),
        (("sweep", "alexnot"), "did you mean alexnet"),
        (("sweep", "alexnet", "--mode", "training,sideways"), "--mode sideways"),
        (("sweep", "alexnet", "--batch", "..max"), "--batch"),
        (("sweep", "alexnet", "--memory-limit", "much"), "write a size, e.g. 8GB"),
        (("sweep", "alexnet", "--input-shape", "64"), "alexnet does not take text"),
        (("sweep", "alexnet", "-o", "mine"), "nothing is overwritten"),
        (("sweep", "--resume", "mine"), "contains no sweep"),
        (("sweep", "alexnet", "--resume", "mine"), "omit the network"),
        (("compare", "--steps", "nowhere"), "nowhere does not exist"),
        (("step",), "Name a network"),
        (("step", "alexnet", "--batch", "0"), "write sizes of at least 1"),
        (("step", "alexnet", "--steps", "0"), "must be at least 1"),
        (("diagnose", "alexnet", "--time-limit", "0"), "more than 0"),
        (("diagnose", "alexnet", "--experiments", "long"), "a duration, e.g. 60s or 2m"),
        (
            ("diagnose", "--of", "energy", "alexnet", "--batch", "1,2", "--axis", "batch=1"),
            "give the values of batch once",
        ),
        (
            ("diagnose", "bert_base", "--batch", "1,2", "--axis", "tokens=8,16"),
            "a curve has one such axis",
        ),
        (
            ("diagnose", "--of", "energy", "alexnet", "--probe", "0"),
            "--of energy measures the energy alone: omit --probe",
        ),
        (
            ("diagnose", "--of", "memory", "alexnet", "--quick", "--until", "1%"),
            "--of memory measures the memory alone: omit --protocol, --until",
        ),
        (
            ("diagnose", "--of", "memory", "--", "true"),
            "--of memory measures the memory alone: omit -- COMMAND",
        ),
        (("explain", "mine", "--of", "memory", "--memory-limit", "much"), "--memory-limit much"),
        (("explain", "mine", "--as-env", "--json"), "--as-env prints variables alone: omit --json"),
        (("confirm", "mine", "--experiments", "0"), "no time is left"),
        (("diagnose", "alexnet", "--device", "cuda:99"), "doctor"),
        (("diagnose", "alexnet", "--device", "abacus"), "Unknown device"),
        (("diagnose", "my_model:small"), "--input-shape"),
        (("diagnose", "my_model:large", "--input-shape", "3"), "no function large"),
        (("diagnose", *MODEL, "-o", "mine"), "nothing is overwritten"),
        (("explain", "nowhere"), "nowhere does not exist"),
        (("explain", "mine", "--pair", "1,3"), "the recording has batch 1, 2, 4"),
        (("explain", "mine", "--at", "4"), "a neighbour on each side"),
        (("breakdown", "mine", "--at", "3"), "was not measured"),
        (("frobnicate",), "invalid choice"),
        ((), "usage"),
    ],
)
def test_bad_input_is_exit_code_2_with_words(recorded, workplace, command, arguments, message):
    done = command(*arguments, cwd=workplace, code=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_an_input_the_model_cannot_take_is_said(workplace, command):
    done = command(
        "diagnose", "my_model:small", "--input-shape", "5,16,16", "-o", "bad", cwd=workplace, code=2
    )
    assert "--input-shape" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SIGTERM", 143),
        pytest.param("SIGINT", 130, marks=pytest.mark.slow),
        pytest.param("SIGHUP", 129, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_a_signal_keeps_what_is_whole_and_answers_from_it(
    workplace, command, monkeypatch, name, code
):
    """The fifth visit is the second of the second round. `timeout` sends its signal twice."""
    written, write = [], RecordingWriter.write

    def interrupt(writer, table, *arguments):
        write(writer, table, *arguments)
        written.append(table)
        if written.count("steps") == 5:
            number = getattr(signal, name)
            for _ in range(1 if name == "SIGINT" else 2):
                signal.raise_signal(number)

    path = f"cut-{name}"
    with monkeypatch.context() as patched:
        patched.setattr(RecordingWriter, "write", interrupt)
        what = (*MODEL, "--batch", "1,2,4", *ENOUGH_TIME, "-o", path)
        cut = command("diagnose", *what, cwd=workplace)
    assert cut.returncode == code
    assert "ms a step" in cut.stdout
    assert "not complete (status: interrupted)" in cut.stdout
    assert f"curvescope explain {path}" in cut.stderr
    assert "Traceback" not in cut.stderr
    assert len(list(Path(workplace, path).glob("steps/*.parquet"))) == 5
    done = command("explain", path, cwd=workplace, code=0)
    assert "not complete (status: interrupted)" in done.stdout


def test_an_interrupt_that_a_library_makes_an_error_of_its_own_ends_the_command_too(
    monkeypatch, capsys
):
    """NumPy raises a TypeError where it comes while values are compared."""

    def interrupted(_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise TypeError("Cannot compare structured arrays")

    with monkeypatch.context() as patched:
        patched.setattr(cli, "_main", interrupted)
        assert cli.main([]) == 143
    assert capsys.readouterr().err == "curvescope: ended by SIGTERM\n"


@pytest.mark.slow
def test_confirm_goes_on_after_a_kill(workplace, command):
    """Experiments are made on the whole visits; all parts stay, also of the visit that was being
    written.
    """
    what = (*MODEL, "--batch", "1,2", "--quick", *ENOUGH_TIME, "--probe", "0", "--experiments", "0")
    command("diagnose", *what, "-o", "killed", cwd=workplace, code=0)
    path = Path(workplace, "killed")
    meta = json.loads((path / "recording.json").read_text())
    (path / "recording.json").write_text(json.dumps({**meta, "status": "recording"}))
    visits = sorted(path.glob("steps/*.parquet"))
    visits[-1].unlink()
    begun = sorted(path.glob(f"*/{visits[-1].name}"))
    assert begun
    done = command("confirm", "killed", "--experiments", "1s", cwd=workplace, code=0)
    assert "Experiments on killed" in done.stderr
    assert json.loads((path / "recording.json").read_text())["status"] == "interrupted"
    assert sorted(path.glob("steps/*.parquet")) == visits[:-1]
    assert all(part.exists() for part in begun)


def test_help_imports_nothing_heavy(tmp_path):
    """`--help` answers in under 0.3 s because none of these is loaded; the time itself is in
    benchmarks/.
    """
    code = (
        "import sys\n"
        "from curvescope.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert not e.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'pyarrow', 'rich', 'scipy'} & "
        "set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert name in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "spared"), [("runs", True), ("doctor --list devices", False)])
def test_the_process_of_a_command_that_reads_starts_and_ends_sooner(name, spared, tmp_path):
    code = (
        "import gc, os, sys\n"
        "from curvescope.cli import main\n"
        f"main({name.split()})\n"
        "assert gc.isenabled(), 'a caller in its own process'\n"
        f"sys.argv[1:] = {name.split()}\n"
        "main()\n"
        "variables = {'OPENBLAS_NUM_THREADS', 'ARROW_DEFAULT_MEMORY_POOL'} & set(os.environ)\n"
        f"assert (not gc.isenabled(), len(variables)) == ({spared}, {2 * spared}), variables"
    )
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("OPENBLAS", "ARROW"))
    }
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True
    )


PUBLISHED = Path(__file__).parents[1] / "data" / "published" / "k40m_training.csv"


def test_a_table_of_times_is_imported_and_explained(tmp_path, command):
    command("import", PUBLISHED, "-o", "table", cwd=tmp_path, code=0)
    out = command("explain", "table", "--noise", "4%", cwd=tmp_path).stdout
    assert "AlexNet-227, PaddlePaddle" in out
    assert max(map(len, out.splitlines())) <= 80
    one = ("--problem", "alexnet paddle", "--noise", "4%")
    (only,) = json.loads(command("explain", "table", *one, "--json", cwd=tmp_path).stdout)["series"]
    assert [(event["at"], event["certainty"]) for event in only["events"]] == [(512, "is")]
    shown = " ".join(command("explain", "table", *one, cwd=tmp_path).stdout.split())
    assert "512 takes" in shown
    assert "standard error of 4 %, as stated (--noise)" in shown
    nothing = command("explain", "table", "--problem", "vgg", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "no problem or device" in nothing.stderr
    command("explain", "table", "--noise", "no", cwd=tmp_path, code=2)


def test_a_system_that_gives_no_thread_has_no_memory(monkeypatch, refusal_of):
    """Python raises a RuntimeError for it, which ended in a traceback; other ones are errors of
    ours.
    """
    raised = RuntimeError("can't start new thread")

    def run(_args):
        raise raised

    monkeypatch.setattr("curvescope.commands.runs.run", run)
    assert "Out of memory" in refusal_of("runs")
    raised = RuntimeError("another")
    with pytest.raises(RuntimeError, match="another"):
        main(["runs"])


def test_too_small_an_address_space_is_refused_and_not_waited_in_for_ever():
    """OpenBLAS tried again and again to get memory while scipy was imported."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (320_000_000,) * 2)\n"
    program += "import sys; from curvescope.cli import main; sys.exit(main(['runs']))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2
    assert "Out of memory" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True], ids=["in time", "while it is started again"])
def test_an_interrupt_that_the_interpreter_swallows_still_ends_the_command(
    monkeypatch, capsys, early
):
    start, moments = cli._thread.start_new_thread, iter([early])

    def start_thread(*arguments):
        if next(moments, False):
            raise KeyboardInterrupt
        return start(*arguments)

    monkeypatch.setattr(cli._thread, "start_new_thread", start_thread)

    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt

    def run(_):
        Interrupted()
        for _ in range(10**9):  # until it comes again
            pass
        return 0

    monkeypatch.setattr("curvescope.commands.doctor.run", run)
    hook = sys.unraisablehook
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "curvescope: interrupted\n"
    assert sys.unraisablehook is hook


def test_a_refusal_wraps_between_words_on_a_terminal(tmp_path, capsys, monkeypatch):
    """A pipe gets one line, as a program that reads it expects."""
    monkeypatch.setenv("COLUMNS", "40")
    command = ["diagnose", "alexnet", "--experiments", "very long", "--device", "cpu"]
    assert main(command) == 2
    (whole,) = capsys.readouterr().err.splitlines()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == whole
