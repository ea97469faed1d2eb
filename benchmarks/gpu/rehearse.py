"""Rehearses the first fifteen minutes on a real card, on a virtual one: `make rehearse`.

Builds a replica of a CUDA machine without a network, with the packages of replica.txt, and copies
what would travel to it: the tracked files and `.wheels`. There it runs the commands of `CALLS` one
after the other, as they are for a real card, on the virtual H100 of tests/virtual_card. It prints
how long they took, what came back and the summary. A busy machine is slower than the one they are
for: `--complete` adds a call without a limit, for what they did not reach.

What ran here is virtual. It shows that every stage runs with that software, and nothing about a
real card.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# What a person runs on a real card; `$OUT` is the folder that comes back.
CALLS = (
    "python3 benchmarks/gpu/campaign.py --wheels .wheels --total-limit 530 --pack $OUT",
    "python3 benchmarks/gpu/campaign.py --wheels .wheels --total-limit 140 --pack $OUT",
)
LIMITS_S = (540, 150)  # of the two calls, 9 and 2.5 minutes
_STAGES = "gate odd identical planted collector program transformer records diagnosis peaks truth"
_COMPLETE = f"python3 benchmarks/gpu/campaign.py --wheels .wheels --pack $OUT {_STAGES}"
MOST_FILES = 6
MOST_TREE_BYTES = 64 << 20
REQUIREMENTS = Path(__file__).with_name("replica.txt")
_PYTHON = "3.12"  # of that machine; its NumPy runs on no older one


def make_replica(folder: Path) -> Path:
    """Create the environment, or renew it where replica.txt changed; returns its Python."""
    python, installed = folder / "bin" / "python3", folder / "replica.txt"
    if installed.exists() and installed.read_text() == REQUIREMENTS.read_text():
        return python
    if not python.exists():
        interpreter = f"python{_PYTHON}"
        try:
            subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"`make rehearse` needs {interpreter} on PATH: {error}.") from error
    # All versions stand in the file, so constraints.txt, which has another torch, is not asked.
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True, env=environment)
    shutil.copyfile(REQUIREMENTS, installed)
    return python


def answer_of(python: Path, program: str) -> str:
    """What a program prints in the replica."""
    return subprocess.run(
        [str(python), "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def make_wheels(python: Path) -> None:
    """Fill `.wheels` for the replica's Python, unless it is there."""
    if any((ROOT / ".wheels").glob("*.so")):
        return
    version = answer_of(python, "import sys; print('%d.%d' % sys.version_info[:2])")
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("wheels.py")), "--python", version],
        check=True,
        cwd=ROOT,
    )


def copy_tree(target: Path) -> int:
    """Copy what would travel: tracked and new files, and `.wheels`; returns its bytes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    names = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    wheels = [path.relative_to(ROOT) for path in (ROOT / ".wheels").iterdir()]
    for name in [*names, *wheels]:
        if not os.path.lexists(ROOT / name):
            continue  # deleted, and not committed yet
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return sum(
        path.lstat().st_size for path in target.rglob("*") if path.is_file() or path.is_symlink()
    )


def card_environment(python: Path, folder: Path) -> dict[str, str]:
    """The variables with which a program of the replica has the virtual H100."""
    from tests.virtual_card.build import build
    from tests.virtual_card.card import Card

    site = Path(answer_of(python, "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    build(folder / "libraries", site)
    return Card(["h100"]).environment(folder / "card", folder / "libraries")


def make_ncu(folder: Path) -> Path:
    """A folder with the stand-in for Nsight Compute."""
    folder.mkdir()
    program = Path(__file__).with_name("virtual_ncu.py").relative_to(ROOT)
    (folder / "ncu").write_text(
        f'#!/bin/bash\nexec python3 "$CURVESCOPE_REHEARSED/{program}" "$@"\n'
    )
    (folder / "ncu").chmod(0o755)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--replica", type=Path, default=ROOT / ".replica", help="its environment (5.5 GB)"
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "rehearsal", help="what comes back"
    )
    parser.add_argument(
        "--complete", action="store_true", help="then run the stages that were not reached"
    )
    args = parser.parse_args()
    python = make_replica(args.replica.absolute())
    make_wheels(python)
    said = answer_of(
        python,
        "import sys, torch; print('Python', sys.version.split()[0], 'torch', torch.__version__)",
    )
    shutil.rmtree(args.output, ignore_errors=True)
    args.output.mkdir(parents=True)
    bad = []
    with tempfile.TemporaryDirectory(prefix="curvescope-rehearsal-") as folder:
        tree, temporary = Path(folder, "tree"), Path(folder, "tmp")
        temporary.mkdir()
        size = copy_tree(tree)
        print(
            f"A replica with {said}; {size / 2**20:.1f} of {MOST_TREE_BYTES >> 20} MiB travel to "
            "it."
        )
        if size > MOST_TREE_BYTES:
            bad.append("the tree is too large to travel")
        environment = card_environment(python, Path(folder))
        environment |= {
            "PATH": os.pathsep.join(
                [str(python.parent), str(make_ncu(Path(folder, "bin"))), environment["PATH"]]
            ),
            "TMPDIR": str(temporary),
            "HOME": folder,
            "CURVESCOPE_REHEARSED": str(tree),
        }
        calls = list(zip(CALLS, LIMITS_S, strict=True)) + [(_COMPLETE, math.inf)] * args.complete
        for number, (call, limit_s) in enumerate(calls, 1):
            out = args.output / f"call-{number}"
            out.mkdir()
            began_s = time.monotonic()
            print(f"\n$ {call}", flush=True)
            subprocess.run(
                ["bash", "-c", call], cwd=tree, env={**environment, "OUT": str(out)}, check=False
            )
            took_s = time.monotonic() - began_s
            files = sorted(out.iterdir())
            print(f"Call {number} took {took_s:.0f} s of {limit_s:.0f}, and gives back:")
            for file in files:
                print(f"  {file.name:<16} {file.stat().st_size / 1e3:9.1f} kB")
            if took_s > limit_s:
                bad.append(f"call {number} took {took_s:.0f} s, over {limit_s}")
            if not 0 < len(files) <= MOST_FILES:
                bad.append(f"call {number} gives back {len(files)} files")
    print("\n" + (args.output / f"call-{len(calls)}" / "summary.md").read_text())
    print(*(f"FAULT: {fault}" for fault in bad), sep="\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
