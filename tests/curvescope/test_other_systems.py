"""On macOS and Windows recordings and profiles are read without the native library; what needs
Linux says so.

A Python of its own plays such a system: it has neither the modules nor the functions that only some
systems have.
"""

import json
import os
import subprocess
import sys

import pytest

from curvescope.cli import ON_LINUX

from ..shared import PROFILES, ROOT

RECORDING = ROOT / "tests/data/causes/WaitsForItsInput"
SMALL = ROOT / "tests/data/networks/vgg_a"
# Not on Windows; `sched_*` and `memfd_create` are not on macOS either. nvtx has no wheel for macOS.
MODULES = ["fcntl", "grp", "nvtx", "pwd", "resource", "termios", "torch"]
OF_OS = (
    "chown",
    "fchmod",
    "fork",
    "forkpty",
    "geteuid",
    "getgid",
    "getloadavg",
    "getpgid",
    "getuid",
    "killpg",
    "mkfifo",
    "memfd_create",
    "nice",
    "posix_fadvise",
    "register_at_fork",
    "sched_getaffinity",
    "sched_setaffinity",
    *("sched_setscheduler", "sysconf", "uname"),
)
OF_SIGNAL = ["SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2"]
PROGRAM = """
import asyncio, multiprocessing, os, platform, signal, subprocess, sys, tempfile  # Python's own choose by what is there
import pyarrow, scipy.stats, adbc_driver_sqlite.dbapi
platform.uname()
sys.modules.update(dict.fromkeys({modules}))
for module, names in ((os, {of_os}), (signal, {of_signal})):
    for name in names:
        delattr(module, name)
sys.platform = "darwin"
from curvescope.cli import main
from curvescope.profiling import native
native.LIBRARY_NAME = "a library that is not built.so"
codes = []
for words in {commands}:
    try:
        codes.append(main(words))
    except SystemExit as ended:
        codes.append(ended.code)
print("\\n", codes)
"""  # noqa: E501


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Runs commands there; gives their exit codes and what they wrote to standard error."""

    def run(*commands):
        lists = {"modules": MODULES, "of_os": OF_OS, "of_signal": OF_SIGNAL, "commands": commands}
        program = PROGRAM.format(**{name: repr(list(words)) for name, words in lists.items()})
        folder = tmp_path_factory.mktemp("elsewhere")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.rpartition("\n ")[2]), done.stderr

    return run


@pytest.mark.slow
def test_recordings_and_profiles_are_read_explained_and_reported(elsewhere):
    profiles = [
        "hta_alexnet_trace.json.gz",
        "josiahdavis_lm_net_17ed.sql.gz",
        "nsysai_h100_2gpu_1s.sqlite.gz",
        "averyclapp_metrics_long.csv",
        "tl_jax08_attention.xplane.pb",
    ]
    trace, recording, small = str(PROFILES / profiles[0]), str(RECORDING), str(SMALL)
    commands = [
        *(["import", str(PROFILES / name), "-o", name] for name in profiles),
        ["explain", recording],
        ["breakdown", trace],
        ["compare", small, small],
        ["roofline", trace],
        ["compare", "--steps", recording],
        ["scale", "read", profiles[0]],
        ["report", small, "-o", "report.html"],
        ["export", small, "--perfetto", "-o", "trace.json"],
        ["runs", "."],
        ["doctor"],
        ["doctor", "--list", "devices"],
        ["diagnose", "vgg_a", "--card", "gtx1080", "--batch", "1,2", "-o", "modelled"],
    ]
    codes, said = elsewhere(*commands)
    assert codes == [0] * len(commands), said


@pytest.mark.slow
def test_every_command_runs_or_says_that_it_needs_linux(elsewhere):
    needing = sorted(ON_LINUX)
    arguments = {"record": ["--", "true"], "confirm": ["r"], "counters": ["r"], "bench": ["gemm"]}
    arguments["scale"] = ["measure", "alexnet"]
    codes, said = elsewhere(*([name, *arguments.get(name, ["alexnet"])] for name in needing))
    assert codes == [2] * len(needing), said
    assert said.count("runs on Linux only") == len(needing)
    assert {"diagnose", "record", "sweep", "bench"} <= set(needing)
    assert not {"import", "explain", "report", "compare"} & set(needing)
