"""Golden set: what every reading command prints of stored inputs, to show that a refactoring
changes nothing.

    python benchmarks/golden.py inputs FOLDER      copies stored profiles and recordings, writes planted ones; once
    python benchmarks/golden.py write OUT --inputs FOLDER [--root CHECKOUT] [--jobs N] [--only
    GROUP] python benchmarks/golden.py compare OLD NEW [--only GROUP] [--lines N] [--files N]

`write` runs the commands of CHECKOUT (default: this one), one file per command; all inputs come
from FOLDER. `compare` exits with 1 if a file differs.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import hashlib
import importlib
import io
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import pyarrow.parquet

HERE = Path(__file__).resolve().parents[1]
# Fixed: width, time zone, order of sets, threads; no ceilings that this machine measured.
ENVIRONMENT = {"COLUMNS": "120", "TZ": "UTC", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "NO_COLOR": "1",
               "OPENBLAS_NUM_THREADS": "1", "CURVESCOPE_DATA": "/nonexistent", "PYTHONWARNINGS": "ignore"}  # fmt: skip
CAUSES = ("algorithm switch", "more calls", "wave and tile quantisation", "memory pressure", "page faults",
          "roof change", "throttling", "kernels beside communication", "fixed cost amortised",
          "profiling overhead")  # fmt: skip
DATE = re.compile(r"20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|\+00:00)?")
TWICE = (
    "explain",
    "breakdown --by layer",
    "breakdown --by kernel",
    "roofline",
    "compare --steps",
    "compare @",
    "runs",
)
# Options of commands on every recording, which is @ again; those of TWICE as text and as JSON.
EACH = [*TWICE, *(f"{line} --json" for line in (*TWICE, "explain --of energy", "explain --pair 8,16", "explain --at 8",
        "explain --curvature linear", "breakdown --at 2", "breakdown --by phase", "breakdown --by op",
        "roofline --by layer")), "explain --all", "breakdown --by kernel --all", "compare --steps --format csv", "export --csv",
        "export --perfetto", "export --parquet", "export --collapsed", "export --speedscope", "report"]  # fmt: skip
SIDES, NETWORKS = (
    "planted/algorithm_switch planted/throttling",
    "recordings/alexnet-cpu recordings/alexnet",
)
KINETO, SGLANG = "profiles/kineto_resnet50_w0_a.pt.trace.json.gz", "profiles/tl_sglang_"
BATCHES = "--batch 32,128,512 " + " ".join(
    f"profiles/parttrans_bs{batch}.pt.trace.json.gz" for batch in (32, 128, 512)
)
SEVERAL = (f"compare {SIDES}", f"compare {SIDES} --fail-over 5%", f"compare {SIDES} --by kernel", f"compare {NETWORKS}",
           f"compare {SIDES} planted/more_calls", f"compare --steps {NETWORKS} --published", "compare --steps planted", "runs planted",
           "scale read ranks", "scale read ranks --explain node:1",
           "scale read ranks --explain 3 --against 8-11", "explain scaling",
           "scale read scaling/devices4", "scale measure --resume scaling", "doctor --list networks",
           "doctor --list devices", "doctor --card gtx1080",
           "explain missing", "doctor --card mi300x", f"explain {KINETO}", "explain profiles/served.json --mode prefill",
           "explain planted/throttling --curvature throughput", f"import {KINETO} -o whole --steps whole",
           f"import {SGLANG}decode.json.gz -o captured --capture {SGLANG}capture_bs32.json.gz")  # fmt: skip
# Command lines by the folder that they go to, whose name is also that of the recording that they
# make.
FURTHER = {
    "imported/sweep": [f"import --as sweep {BATCHES} -o imported/sweep"],
    "imported/times": ["import times.csv -o imported/times", "explain imported/times --problem AlexNet",
                       "explain imported/times --noise 5% --json"],
    "imported/modelled": ["diagnose vgg_a --card gtx1080 --batch 16..128 -o imported/modelled --json"],
    "several": [*SEVERAL, *(f"{line} --json" for line in SEVERAL if not line.startswith("import")), "--help", "--version", "explain scaling --all",
                "scale read ranks --all", "report planted/tested planted/throttling", "roofline recordings/googlenet --csv"],
}  # fmt: skip


def write_inputs(out: Path) -> None:
    """Copy what this checkout stores, and write planted sweeps, a server's trace, ranks and a
    scaling run.
    """
    sys.path[:0] = [str(HERE), str(HERE / "examples" / "serving")]
    data, unread = HERE / "tests" / "data", shutil.ignore_patterns("*.md", "*.py", "__pycache__")
    for folder in (HERE / "examples" / "recordings", data / "causes", data / "networks"):
        shutil.copytree(folder, out / "recordings", ignore=unread, dirs_exist_ok=True)
    shutil.copytree(data / "profiles", out / "profiles", ignore=unread)
    shutil.copy(data / "jax" / "jax_cpu.trace.json.gz", out / "profiles")
    shutil.copy(data / "published" / "k40m_training.csv", out / "times.csv")
    tests = importlib.import_module
    serving, planted = tests("write_trace"), tests("tests.curvescope.recordings")
    serving.served_trace(
        out / "profiles" / "served.json", serving.jump_at_8, context=lambda batch: 8192 // batch
    )
    for cause in CAUSES:
        planted.write_planted(out / "planted" / cause.replace(" ", "_"), cause)
    tests("tests.analysis.planted_energy").write_energy(
        out / "planted" / "energy", lambda batch: 300 if batch == 16 else 200
    )
    tests("tests.curvescope.tested_recording").write_tested(out / "planted" / "tested")
    ranks = tests("tests.curvescope.test_ranks")
    ranks.write_ranks(out / "ranks", ranks.RANKS)
    write_scaling(out / "scaling", planted, tests("tests.analysis.test_scaling").run_of)


def write_scaling(out: Path, planted, run_of) -> None:
    """A weak and strong scaling run on 1, 2 and 4 devices: rank 1 is slow, input takes longer on
    more.
    """
    from numpy.random import default_rng

    protocol = {"name": "default", "rounds": [6, 6], "discarded_steps": 1, "steps_per_visit": [2, 2], "visit_s": 1.0,
                "profiled_steps": 1, "time_limit_s": None, "statistic": "median"}  # fmt: skip
    plan = {"format": "curvescope scale", "version": 1, "argv": [], "devices": [1, 2, 4], "batch": 8, "total_batch": 8,
            "configuration": {"network": "alexnet", "input_shape": [3, 224, 224]}, "protocol": protocol, "threads": 1,
            "source": "resident", "timeout_s": 60.0}  # fmt: skip
    for devices, batches in ((1, (2, 4, 8)), (2, (4, 8)), (4, (2, 8))):
        points = [
            run_of(devices, b, default_rng(b), slow_rank=1, slow_input=float(devices))
            for b in batches
        ]
        for rank in range(devices):
            place = {"rank": rank, "world_size": devices, "local_rank": rank % 2, "node": rank // 2}
            meta = {
                "protocol": protocol,
                "unmeasured": [],
                "discarded_steps": 7,
                "distributed": place,
            }
            with planted.RecordingWriter(
                out / f"devices{devices}/rank{rank}", {**planted.META, **meta}
            ) as writer:
                for number, point in enumerate(points):
                    for name in ("steps", "kernels", "ranges"):
                        rows = getattr(point.ranks[rank], name).assign(
                            mode="training", source="torch", kind="phase"
                        )
                        rows = rows.assign(step=rows["step"] + 1000 * number)
                        rows = rows.assign(start_ns=rows["start_ns"] + 10**12 * number)
                        writer.write(name, planted.rows_of_table(name, rows))
    (out / "scale.json").write_text(json.dumps(plan, indent=1))


def write(root: Path, inputs: Path, out: Path, jobs: int, only: str) -> None:
    """Run all command lines of a checkout in a copy of the inputs, each group in a process of its
    own.
    """
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    # Before an editable installation, which finds modules first, and knows only those of its own
    # checkout.
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if "editable" not in type(finder).__module__
    ]
    sys.path.insert(0, str(root))
    assert Path(importlib.import_module("curvescope.cli").__file__).is_relative_to(root)
    out.mkdir(parents=True)
    gc.disable()
    with tempfile.TemporaryDirectory(prefix="golden-") as work:
        shutil.copytree(inputs, work, dirs_exist_ok=True)
        os.chdir(work)
        profiles = sorted(Path("profiles").iterdir())
        groups = FURTHER | {
            f"imported/{p.name}": [f"import {p} -o imported/{p.name}"] for p in profiles
        }
        groups |= {
            str(path): []
            for name in ("recordings", "planted")
            for path in sorted(Path(name).iterdir())
        }
        groups["help"] = [f"{c} --help" for c in importlib.import_module("curvescope.cli").COMMANDS]
        tasks = [(name, lines, root, out) for name, lines in groups.items() if only in name]
        fork = multiprocessing.get_context("fork")
        with fork.Pool(
            1
        ) as pool:  # what a command imports, the parent imports once for all processes to come
            names = pool.apply(
                modules_after, (f"report {next(Path('recordings').iterdir())} -o warm.html",)
            )
        for name in names:
            importlib.import_module(name)
        with fork.Pool(jobs, maxtasksperchild=1) as pool:
            pool.starmap(write_group, tasks, chunksize=1)


def modules_after(line: str) -> list[str]:
    """Names of the modules that a command imports, of the product and of large packages."""
    run(line)
    return [
        name
        for name in sys.modules
        if name.startswith(("curvescope", "pandas", "pyarrow", "rich", "scipy"))
    ]


def run(line: str) -> tuple[int | str, str, str]:
    """Exit code, or the traceback of a crash, standard output and error of one command line."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = importlib.import_module("curvescope.cli").main(line.split())
        except SystemExit as error:
            code = error.code
        except Exception:
            code = traceback.format_exc(limit=0)
    return code, stdout.getvalue(), stderr.getvalue()


def write_group(name: str, lines: list[str], root: Path, out: Path) -> None:
    """Run the command lines of one group, then EACH on the recording of its name, if there is one
    by then.
    """
    (out / name).mkdir(parents=True)
    for line in lines:
        keep(name, line, out, root)
    for line in EACH if Path(name, "recording.json").exists() else ():
        command, _, options = line.partition(" ")
        keep(name, " ".join(filter(None, (command, name, options.replace("@", name)))), out, root)


def keep(name: str, line: str, out: Path, root: Path) -> None:
    """Run a command line on `name`, and write what it printed and made, without what differs from
    run to run.
    """
    made = Path(tempfile.mkdtemp(dir="."), "made")

    def clean(text: str) -> str:
        for path, word in ((str(made), "MADE"), (os.getcwd(), "WORK"), (str(root), "ROOT")):
            text = text.replace(path, word)
        return re.sub(r"/tmp/curvescope-\w+", "TEMPORARY", DATE.sub("DATE", text))

    makes = line.startswith(("report", "export"))
    code, stdout, stderr = run(line + f" -o {made}" * makes)
    entry = {
        "command": line,
        "exit": code,
        "stderr": clean(stderr).splitlines(),
        "stdout": clean(stdout).splitlines(),
    }
    if "json" in line:
        with contextlib.suppress(ValueError):
            entry["stdout"] = json.loads(clean(stdout))
    if line.startswith("import") and " -o " in line:
        made = Path(line.partition(" -o ")[2].split()[0])
    files = [made] * made.is_file() or sorted(path for path in made.rglob("*") if path.is_file())
    entry["files"] = {
        str(path.relative_to(made.parent)): contents(path, clean, name) for path in files
    }
    file = re.sub(r"[^\w.,%-]+", "_", line.replace(f" {name}", ""))[:150]
    (out / name / f"{file}.json").write_text(json.dumps(entry, indent=1, ensure_ascii=False))


def contents(path: Path, clean, name: str) -> object:
    """A file in short: digests of a table's columns; the data and the page of a report, its script
    once.
    """
    if path.suffix == ".parquet":
        table = pyarrow.parquet.ParquetFile(path).read()
        return {
            c: f"{table[c].type} {table.num_rows} {digest(str(table[c].to_pylist()))}"
            for c in table.column_names
        }
    text = clean(path.read_text())
    if path.name == "recording.json":
        return json.loads(text)
    if not text.startswith("<!doctype html>"):
        return f"{text.count(chr(10))} lines {digest(text)}"
    page, data, rest = re.split(
        r'(?s)(?<=<script id="data" type="application/json">)(.*?)(?=</script>)', text, maxsplit=1
    )
    if name != "several":
        page = re.sub(r"(?s)<style>.*?</style>|sha256-[^']*", "", page)
        rest = rest.partition("<script>")[0]
    return {"page": (page + rest).splitlines(), "data": json.loads(data)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compare(old: Path, new: Path, most_lines: int, most_files: int, only: str) -> int:
    names = {
        str(path.relative_to(folder))
        for folder in (old, new)
        for path in folder.rglob("*.json")
        if path.is_file()
    }
    names = sorted(name for name in names if only in str(Path(name).parent))
    different = 0
    for name in names:
        before, after = (
            (folder / name).read_text() if (folder / name).exists() else "" for folder in (old, new)
        )
        if before == after:
            continue
        different += 1
        if different <= most_files:
            both = before.splitlines(), after.splitlines()
            lines = list(
                difflib.unified_diff(*both, f"{old}/{name}", f"{new}/{name}", "", "", 1, "")
            )
            further = [f"… {len(lines) - most_lines} more lines"] * (len(lines) > most_lines)
            print(*lines[:most_lines], *further, sep="\n")
    print(f"{different} of {len(names)} files differ.")
    return int(different > 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("inputs", "write", "compare"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument(
        "--inputs", type=Path, default=Path("/tmp/golden/inputs"), help="folder written by `inputs`"
    )
    parser.add_argument("--root", type=Path, default=HERE, help="checkout whose code runs")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--only", default="", help="part of a group's name, e.g. planted/ or imported/served"
    )
    parser.add_argument("--lines", type=int, default=30, help="lines shown of a file")
    parser.add_argument("--files", type=int, default=40, help="files shown")
    args = parser.parse_args()
    first, last = args.folders[0].absolute(), args.folders[-1].absolute()
    if args.verb == "compare":
        return compare(first, last, args.lines, args.files, args.only)
    if args.verb == "inputs":
        write_inputs(last)
    else:
        write(args.root.resolve(), args.inputs.absolute(), last, args.jobs, args.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
