"""What commands open to others: they listen on loopback alone, and run no file of the folder that
they work in.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curvescope.base.own_process import python_command
from curvescope.cli import COMMANDS

from ..analysis.ranks.planted_ranks import write_ranks
from ..shared import PROFILES, ROOT
from ..tables import grade
from .listening import Watch, listening_at

# Modules that Python or Curvescope imports while it starts, or later.
HOSTILE = (
    "runpy",
    "json",
    "socket",
    "signal",
    "struct",
    "selectors",
    "msgspec",
    "numpy",
    "torch",
    "curvescope",
)
RECORDING = str(ROOT / "examples" / "recordings" / "alexnet-cpu")
SHORT_RECORDING = str(ROOT / "tests" / "data" / "causes" / "WaitsForItsInput")
TRACE = str(PROFILES / "kineto_resnet50_w0_a.pt.trace.json.gz")
SHORT = ["--quick", "--time-limit", "3", "--batch", "1,2"]
# The least number of rounds, for what starts several processes.
LEAST = ["alexnet", "--quick", "--time-limit", "1", "--batch", "1"]
# They read a recording as `explain` does, or load torch, in as many seconds each.
ALIKE = {
    *("sizes", "breakdown", "compare", "compare --steps", "roofline", "counters", "report"),
    *("explain --as-env", "diagnose --of energy", "diagnose --of memory", "export"),
    "diagnose --card gtx1080",
    *("doctor --list networks", "doctor --list devices", "step"),
}
QUICK = ("runs",)
# Each with exit codes: 2 where there is nothing of the kind here, e.g. no GPU.
LINES = {
    "diagnose": ["alexnet", *SHORT, "--experiments", "2s", "-o", "new"],
    "diagnose --of energy": ["alexnet", *SHORT, "-o", "new"],
    "diagnose --of memory": ["alexnet", "--batch", "1", "-o", "new"],
    "diagnose --card gtx1080": ["vgg_a", "--batch", "1..4", "-o", "new"],
    "sweep": [*LEAST, "--mode", "forward", "--device", "cpu", "--scheduler", "local",
              "--workers", "1", "-o", "new"],
    "scale measure": ["alexnet", "--quick", "--time-limit", "1", "--at", "1",
                      "--devices", "1,2", "--device", "cpu", "-o", "new"],
    "scale read": ["JOB", "--workers", "2"],
    "bench": ["launch", "--device", "cpu", "--time-limit", "0.1", "-o", "new"],
    "record": ["-o", "new", "--", "true"],
    "step": ["alexnet", "--batch", "1", "--device", "cpu"],
    "explain": [SHORT_RECORDING],
    "explain --as-env": [RECORDING],
    "sizes": [RECORDING],
    "breakdown": [RECORDING],
    "compare": [RECORDING, RECORDING],
    "compare --steps": [RECORDING],
    "roofline": [RECORDING],
    "report": [RECORDING, "-o", "new.html"],
    "runs": [str(Path(RECORDING).parent)],
    "confirm": ["COPY", "--experiments", "5s"],
    "counters": [RECORDING],
    "import": [TRACE, "-o", "new"],
    "export": [RECORDING, "--csv", "-o", "new"],
    "mcp": [],
    "doctor": [],
    "attach": ["999999999"],
    "doctor --list devices": [],
    "doctor --list networks": [],
}  # fmt: skip


def test_the_table_has_every_command():
    assert {name.split()[0] for name in LINES} == COMMANDS.keys()


@pytest.fixture
def hostile(tmp_path):
    """A folder in which a file stands for each module, and leaves a trace if it runs."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for module in HOSTILE:
        (folder / f"{module}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write({module!r})\n"
        )
    return folder


def started(folder, *arguments):
    """A command in a process of its own, which is none of `python -m`."""
    return subprocess.Popen(
        python_command("curvescope.cli", "exit_with", *arguments),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt_once_ranks_measure(process, run):
    """They are connected and have loaded what they need. What they open later,
    curvescope/test_scale.py asks of a smaller network.
    """
    limit_s = time.monotonic() + 600
    while process.poll() is None and len(list(run.glob("devices2/*/recording.json"))) < 2:
        assert time.monotonic() < limit_s
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "name",
    grade([*LINES], quick=QUICK, in_ci=LINES.keys() - ALIKE),
)
def test_no_command_listens_beyond_loopback_or_runs_a_file_of_its_folder(name, hostile, tmp_path):
    words = LINES[name]
    if "JOB" in words:
        write_ranks(tmp_path / "job", 4)
    if "COPY" in words:
        shutil.copytree(RECORDING, tmp_path / "copy")
    places = {"JOB": str(tmp_path / "job"), "COPY": str(tmp_path / "copy")}
    process = started(hostile, *name.split(), *(places.get(word, word) for word in words))
    with Watch(process.pid) as watch:
        if name == "scale measure":
            interrupt_once_ranks_measure(process, hostile / "new")
        _, said = process.communicate(timeout=600)
    assert process.returncode in ((130,) if name == "scale measure" else (0, 2)), said
    assert "Traceback" not in said
    assert watch.looks
    assert not watch.beyond_loopback
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    if name == "scale measure":
        assert watch.found, "its ranks connect"
    elif name in ("sweep", "scale read"):
        assert process.returncode == 0, said
        assert not watch.found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.1", "::1"])
def test_an_address_at_which_a_process_listens_is_found(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as opened:
        try:
            opened.bind((address, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        assert (address, opened.getsockname()[1]) not in {
            (str(a), p) for a, p in listening_at([os.getpid()])
        }
        opened.listen()
        assert (address, opened.getsockname()[1]) in {
            (str(a), p) for a, p in listening_at([os.getpid()])
        }
