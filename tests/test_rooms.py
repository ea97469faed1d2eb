"""The rooms of the code: imports follow the arrows of the picture in CONTRIBUTING.md, and no others."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What each room may import, beside itself. Modules that lie in no room of `profiling` (errors, plugins, …) serve all.
PROFILING = {
    "recording": set(),
    "hardware": {"recording"},
    "attribution": {"recording", "hardware"},
    "readers": {"attribution", "recording", "hardware"},
    "collect": {"readers", "attribution", "recording", "hardware"},
    "workload": {"collect", "attribution", "recording", "hardware"},
    "measure": {"workload", "collect", "attribution", "recording", "hardware"},
}
TOP = {
    "base": set(),
    "profiling": set(),
    "kernels": {"profiling"},
    "analysis": {"profiling"},
    "experiments": {"analysis", "kernels", "profiling"},
    "curvescope": {"experiments", "analysis", "kernels", "profiling"},
}


def rooms_of(module):
    """The top-level room and, inside profiling, the inner one; ("", "") outside the package."""
    parts = module.split(".")
    if parts[0] != "curvescope":
        return "", ""
    top = parts[1] if len(parts) > 1 and parts[1] in TOP else "curvescope"
    if parts[:2] == ["curvescope", "base"]:
        return "base", ""
    inner = parts[2] if top == "profiling" and len(parts) > 2 and parts[2] in PROFILING else ""
    return top, inner


def imports(path, module):
    """Absolute names of the modules that a file of the package imports."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{name.name}" for name in node.names)


def modules():
    for top in TOP:
        for path in (ROOT / top).rglob("*.py"):
            relative = path.relative_to(ROOT).with_suffix("")
            yield path, ".".join(relative.parts if top == "curvescope" else ("curvescope", *relative.parts))


def test_imports_follow_the_arrows():
    against = []
    for path, module in modules():
        top, inner = rooms_of(module)
        for name in imports(path, module):
            to, within = rooms_of(name)
            allowed = to in ("", "base", top, *TOP[top])
            if to == top and inner and within:
                allowed = within == inner or within in PROFILING[inner]
            if not allowed:
                against.append(f"{module} imports {name}")
    assert not against, "\n".join(against)


@pytest.mark.parametrize("heavy", ["torch", "cupy", "pycuda", "numba", "nvtx"])
def test_analysis_needs_no_framework(heavy):
    users = [m for p, m in modules() if rooms_of(m)[0] == "analysis" for n in imports(p, m) if n.split(".")[0] == heavy]
    assert not users


def test_links_of_the_rooms_are_relative():
    for room in ("analysis", "experiments", "kernels", "profiling"):
        assert (ROOT / "curvescope" / room).readlink() == Path("..") / room


def test_the_picture_of_the_documentation_is_the_one_of_contributing():
    source = re.search(r"```mermaid\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1]
    drawn = (ROOT / "docs" / "figures" / "rooms.svg").read_text()
    chains = [
        re.findall(r"\w+(?=\[|\s|$)", re.sub(r'\[".*?"\]', "", line)) for line in source.split("\n") if "-->" in line
    ]
    for chain in chains:
        for start, end in pairwise(chain):
            assert f"L_{start}_{end}_" in drawn, f"{start} --> {end}: draw docs/figures/rooms.svg anew"
    assert drawn.count('data-edge="true"') == sum(len(chain) - 1 for chain in chains)
