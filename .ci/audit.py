"""Writes a bill of materials of what users install, and asks the advisory database about it:
`make audit`.

An empty environment gets the package and all extras of users; build/sbom.json is its CycloneDX
bill, with what is compiled into our libraries, which no package index knows and no database is
asked about. Those that need a CUDA toolkit or another extra's place, and large ones, are only asked
about, by the versions of constraints.txt. Exit code 1: a known vulnerability. Exit code 2: the
database did not answer for some package, which is then not known to be free of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Of users: tools of development and release do not reach them.
EXTRAS = ("torch", "numba", "mcp", "ncu", "cluster", "cuda12", "nvrtc")
# Each cupy excludes the others; pycuda is built with CUDA; frameworks are large.
ASKED_ABOUT = (
    "cupy-cuda11x",
    "cupy-cuda13x",
    "pycuda",
    "jax",
    "tensorflow-cpu",
    "onnxruntime",
    "onnxscript",
    "py-spy",
)
BILL = ROOT / "build" / "sbom.json"


def main() -> int:
    """Write the bill, audit, and say what was found and what could not be asked."""
    BILL.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="curvescope-audit-") as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
        ]
        subprocess.run([*pip, f"{ROOT}[{','.join(EXTRAS)}]"], check=True)
        bill = [
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "--pyproject",
            ROOT / "pyproject.toml",
            "-o",
            BILL,
            python,
        ]
        subprocess.run(bill, check=True)
        site = next((Path(folder) / "lib").glob("python*/site-packages"))
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--path",
            site,
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        pinned = Path(folder) / "pinned.txt"
        pinned.write_text("\n".join(pins(ASKED_ABOUT)))
        command = [sys.executable, "-m", "pip_audit", "-r", pinned, "--no-deps", "--disable-pip"]
        others = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    components = json.loads(BILL.read_text())["components"]
    print(f"{BILL.relative_to(ROOT)}: {len(components)} components")
    try:
        asked = json.loads(done.stdout)["dependencies"] + json.loads(others.stdout)["dependencies"]
    except ValueError:
        print(
            "NOT AUDITED: the advisory database was not "
            f"reached:\n{(done.stderr + others.stderr).strip()[-500:]}"
        )
        return 2
    return report(asked)


def pins(names: tuple[str, ...]) -> list[str]:
    """The lines of constraints.txt of some packages."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in names]


def report(asked: list[dict[str, object]]) -> int:
    """Print the outcome for each package that has one to be told; the exit code."""
    asked = [entry for entry in asked if entry["name"] != "curvescope"]
    vulnerable = [entry for entry in asked if entry.get("vulns")]
    skipped = [entry for entry in asked if "skip_reason" in entry]
    for entry in vulnerable:
        ids = ", ".join(str(v["id"]) for v in entry["vulns"])  # type: ignore[attr-defined]
        print(f"VULNERABLE: {entry['name']} {entry['version']}: {ids}")
    if asked and len(skipped) == len(asked):
        print(
            "NOT AUDITED: the advisory database answered for no package: its service cannot be "
            "reached from here."
        )
        print("Run `make audit` where pypi.org answers.")
        return 2
    if skipped:
        print(
            f"NOT AUDITED: for {len(skipped)} of {len(asked)} packages the advisory database had "
            "no answer:"
        )
        print("  " + ", ".join(str(entry["name"]) for entry in skipped))
    print(
        f"{len(asked) - len(skipped) - len(vulnerable)} of {len(asked)} packages have no known "
        "vulnerability."
    )
    return 1 if vulnerable else 2 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
