"""How fast the code and its documentation read, as figures: `python benchmarks/house.py`.

By room: files, lines that are not blank, tokens a line, lines over 100 characters, and names that
say nothing (`one`, `found`, `known` and the like); then the words of each part of the
documentation. What imports what, in circles or through how many doors, tests/test_rooms.py holds.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from draw_rooms import ROOMS, modules, room_of  # noqa: E402

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_SAYS_NOTHING = {"one", "found", "known", "told", "given", "seen", "hopeful", "thing", "some"}
# Parts of the documentation: the pages that begin so, the first that fits.
_PARTS = {
    "README.md": "README",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributors",
    "docs/case-studies/": "cases",
    "docs/answer.md": "users",
    "docs/ci.md": "users",
    "docs/gpu.md": "users",
    "docs/index.md": "users",
    "docs/profile.md": "users",
    "docs/program.md": "users",
    "docs/server.md": "users",
    "docs/step.md": "users",
    "docs/trust.md": "users",
    "docs/tutorial.md": "users",
    "docs/": "internals",
}


def figures_of(path: Path) -> Counter[str]:
    """The figures of one file."""
    text = path.read_text("utf-8")
    with path.open("rb") as stream:
        tokens = sum(token.type not in _LAYOUT for token in tokenize.tokenize(stream.readline))
    lines = text.splitlines()
    return Counter(
        files=1,
        lines=sum(bool(line.strip()) for line in lines),
        tokens=tokens,
        long=sum(len(line) > 100 for line in lines),
        names=sum(name in _SAYS_NOTHING for name in _bound_names(ast.parse(text))),
    )


def _bound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def words_of_pages() -> Counter[str]:
    """Words of the pages that are committed, by part of the documentation."""
    listed = ["git", "-C", str(ROOT), "ls-files", "README.md", "C*.md", "docs/*.md"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    words: Counter[str] = Counter()
    for name in names:
        part = next(part for begins, part in _PARTS.items() if name.startswith(begins))
        words[part] += len((ROOT / name).read_text("utf-8").split())
    return words


def main() -> None:
    by_room: dict[str, Counter[str]] = defaultdict(Counter)
    for path, module in modules():
        by_room[room_of(module) or ""] += figures_of(path)
    rows = {room or "curvescope": by_room[room] for room in ROOMS}
    rows["all"] = sum(rows.values(), Counter())
    print(f"{'room':24}{'files':>8}{'lines':>8}{'tokens a line':>15}{'over 100':>10}{'names':>8}")
    for room, row in rows.items():
        density = row["tokens"] / row["lines"]
        print(
            f"{room:24}{row['files']:8}{row['lines']:8}{density:15.1f}{row['long']:10}"
            f"{row['names']:8}"
        )
    words = words_of_pages()
    print("\nwords of the documentation")
    for part, count in [*words.items(), ("all", words.total())]:
        print(f"{part:24}{count:8}")


if __name__ == "__main__":
    main()
