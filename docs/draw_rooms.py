"""Draws the rooms of the code from its imports: `make rooms` writes them where they are shown.

An arrow is drawn where one room imports another, unless a chain of other arrows implies it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRIBUTING, PICTURE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "figures" / "rooms.svg"

# Module prefix (within the package) -> what the room holds, from top to bottom: imports go down
# this list only.
ROOMS = {
    "": "public API, command line",
    "experiments": "factors, replay, plan",
    "kernels": "microbenchmarks",
    "analysis.render": "text, JSON, HTML, notebook",
    "analysis.diagnosis": "findings, answers",
    "analysis": "compare, scaling, roofline",
    "analysis.ranks": "ranks, stragglers",
    "analysis.causes": "one file for each kind",
    "analysis.verdicts": "what is confirmed",
    "analysis.cost_model": "predicted steps",
    "analysis.decompose": "exact split, statistics",
    "profiling.measure": "the loop, visits",
    "profiling.workload": "networks, own steps",
    "profiling.collect": "CUPTI, NVTX, torch",
    "profiling.frameworks": "one adapter each",
    "profiling.readers": "one module per format",
    "profiling.attribution": "which layer and step",
    "profiling.hardware": "devices, clocks, limits",
    "profiling.recording": "schema, store",
    "profiling": "door to native/",
    "base": "errors, numbers, plugins",
}

Arrows = Mapping[str, frozenset[str]]


def room_of(module: str) -> str | None:
    """The room of a module, the longest prefix that fits; None outside the package."""
    if module.split(".")[0] != "curvescope":
        return None
    inner = module.partition(".")[2] + "."
    return max((room for room in ROOMS if not room or inner.startswith(room + ".")), key=len)


def modules() -> Iterator[tuple[Path, str]]:
    """Every Python file of the package, and the name of its module."""
    for top in ("curvescope", *sorted({room.split(".")[0] for room in ROOMS} - {"", "base"})):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if top != "curvescope" or not any(folder.is_symlink() for folder in path.parents):
                yield path, ".".join(parts if top == "curvescope" else ("curvescope", *parts))


@cache
def imports(path: Path, module: str) -> tuple[str, ...]:
    """Absolute names of what a file of the package imports, at its top and inside functions."""
    package = module.split(".")[:-1]
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names += [f"{base}.{name.name}" for name in node.names]
    return tuple(names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, at any depth; of ten nodes of a file nine are expressions."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, block, None)
            if isinstance(inside, list):
                left += inside


@cache
def arrows() -> Arrows:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path, module in modules():
        room = room_of(module)
        targets = {room_of(name) for name in imports(path, module)}
        found[room or ""] |= {target for target in targets if target is not None and target != room}
    return {room: frozenset(targets) for room, targets in found.items()}


def drawn(all_arrows: Arrows) -> list[tuple[str, str]]:
    """The arrows that no chain of others implies."""

    def below(room: str) -> set[str]:
        return set().union(*({target} | below(target) for target in all_arrows[room]))

    return [
        (room, target)
        for room, targets in all_arrows.items()
        for target in sorted(targets, key=list(ROOMS).index)
        if not any(target in below(other) for other in targets - {target})
    ]


def mermaid() -> str:
    """The diagram as Mermaid's text."""
    lines = ["flowchart TB"]
    for top in dict.fromkeys(room.split(".")[0] for room in ROOMS):
        inner = [room for room in ROOMS if room.split(".")[0] == top]
        boxes = [f'{_node(room)}["{_title(room)}<br>{ROOMS[room]}"]' for room in inner]
        grouped = [f"  subgraph {top}", *(f"    {box}" for box in boxes), "  end"]
        lines += grouped if len(boxes) > 1 else [f"  {box}" for box in boxes]
    for room, target in drawn(arrows()):
        lines.append(f"  {_node(room)} --> {_node(target)}")
    return "\n".join(lines) + "\n"


def svg() -> str:
    """The same diagram as a picture: every room on the floor above all that it imports."""
    edges = drawn(arrows())
    floor: dict[str, int] = {}
    for room in reversed(ROOMS):
        targets = [target for start, target in edges if start == room]
        floor[room] = 1 + max((floor[target] for target in targets), default=-1)
    width, height, gap = 172, 46, 34
    columns: dict[str, list[str]] = {"analysis": [], "": [], "profiling": []}
    for room in ROOMS:
        columns[top if (top := room.split(".")[0]) in columns else ""].append(room)
    at, left, floors = {}, 0, 1 + max(floor.values())
    for rooms in columns.values():
        levels = [[room for room in rooms if floor[room] == level] for level in range(floors)]
        across = max(map(len, levels))
        for level, beside in enumerate(levels):
            start = left + (across - len(beside)) * (width + 16) / 2 + 8
            row_top = (floors - 1 - level) * (height + gap) + 8
            at.update({room: (start + i * (width + 16), row_top) for i, room in enumerate(beside)})
        left += across * (width + 16)
    size = left, floors * (height + gap) - gap + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
        'font-family="sans-serif">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{size[0]}" height="{size[1]}" fill="#fff"/>',
    ]
    for room, target in edges:
        (x1, y1), (x2, y2) = at[room], at[target]
        x1, y1, x2 = x1 + width / 2, y1 + height, x2 + width / 2
        bend = (y2 - y1) / 2
        # the rooms between them
        around = -width if x1 == x2 and floor[room] - floor[target] > 1 else 0
        curve = (
            f"M{x1:g} {y1:g}C{x1 + around:g} {y1 + bend:g} {x2 + around:g} {y2 - bend:g} {x2:g} "
            f"{y2:g}"
        )
        parts.append(f'<path d="{curve}" fill="none" stroke="#667" marker-end="url(#a)"/>')
    for room, (x, y) in at.items():
        middle = x + width / 2
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="6" fill="#eef3fa" '
            f'stroke="#4a6fa5"/><text x="{middle:g}" y="{y + 19:g}" text-anchor="middle" '
            f'font-size="13">{escape(_title(room))}</text><text x="{middle:g}" y="{y + 36:g}" '
            f'text-anchor="middle" font-size="11" fill="#556">{ROOMS[room]}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def in_contributing() -> str:
    """The text of CONTRIBUTING.md with today's diagram."""
    text = CONTRIBUTING.read_text("utf-8")
    return re.sub(
        r"(?<=```mermaid\n).*?(?=```)", lambda _: mermaid(), text, count=1, flags=re.DOTALL
    )


def _node(room: str) -> str:
    return room.replace(".", "_") + "_" if room else "package_"


def _title(room: str) -> str:
    return room.replace(".", "/") + "/" if room else "curvescope/"


if __name__ == "__main__":
    CONTRIBUTING.write_text(in_contributing(), "utf-8")
    PICTURE.write_text(svg(), "utf-8")
