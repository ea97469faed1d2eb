"""How fast the code and its documentation read, as figures: `python benchmarks/house.py`.

By room: files, lines that are not blank, tokens a line, lines over 100 characters, names that say
nothing (`one`, `found`, `known` and the like), nodes of expressions in a simple statement,
functions named by a participle, and of docstrings the pronouns in 1,000 words and the semicolons in
100 sentences. The same of peers, by a similar script: of commit 8b0bd0ec it gave 8.8 nodes, 6.5 %
of participles and 6.0 pronouns, and this one gives 8.9, 8.4 % and 5.5. Then the words of each part
of the documentation, with its pronouns and semicolons. tests/test_rooms.py holds the imports.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
# Participles that do not end in -ed, and words that do and are none.
_IRREGULAR = {"begun", "drawn", "found", "given", "held", "kept", "known", "made", "seen",
              "shown", "taken", "told", "worn", "written"}  # fmt: skip
_NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "red", "seed", "speed"}
_PRONOUNS = re.compile(
    r"\b(?:(?:that|those) of|what (?:is|was|are|were|it|has|they|a)|of [\w`]+ alone)\b",
    re.IGNORECASE,
)
_SIMPLE = (
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Return,
    ast.Expr,
    ast.Raise,
    ast.Assert,
    ast.Delete,
)
_SENTENCE_ENDS = re.compile(r"[.!?:](?=\s|$)")
# Parts of the documentation: the pages that begin so, the first that fits.
_PARTS = {
    "README.md": "README",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributors",
    "SECURITY.md": "contributors",
    "docs/internals/evidence.md": "evidence",
    "docs/internals/": "internals",
    "docs/case-studies/": "cases",
    "docs/": "pages of users",
}
# Measured on the sources of the peers: nodes a statement, functions named by a participle in per
# cent, pronouns in 1,000 words of docstrings and of pages, semicolons in 100 sentences of pages.
_PEERS = {
    "pyinstrument": (5.1, 0.5, 0.2, 0.0, 0),
    "memray": (6.2, 4.0, 1.0, 0.7, 2),
    "httpx": (6.0, 1.4, 0.0, 1.2, 0),
    "HTA": (7.2, 0.3, 0.3, 0.3, 0),
    "TraceLens": (7.1, 1.0, 0.1, 0.7, 6),
}
_COLUMNS = ("files", "lines", "tokens/line", "over 100", "names", "nodes/statement", "participles",
            "pronouns", "semicolons")  # fmt: skip


def figures_of(path: Path) -> Counter[str]:
    """The counts of one file."""
    text = path.read_text("utf-8")
    with path.open("rb") as stream:
        tokens = sum(token.type not in _LAYOUT for token in tokenize.tokenize(stream.readline))
    lines = text.splitlines()
    tree = ast.parse(text)
    docstrings = list(_docstrings(tree))
    statements = list(_simple_statements(tree))
    functions = [node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    counts = Counter(
        files=1,
        lines=sum(bool(line.strip()) for line in lines),
        tokens=tokens,
        long=sum(len(line) > 100 for line in lines),
        names=sum(name in _SAYS_NOTHING for name in _bound_names(tree)),
        statements=len(statements),
        nodes=sum(
            isinstance(node, ast.expr) for statement in statements for node in ast.walk(statement)
        ),
        functions=len(functions),
        participles=sum(map(is_participle, functions)),
    )
    for docstring in docstrings:
        counts += prose_of(docstring)
    return counts


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_participle(name: str) -> bool:
    """Whether the first word of a function's name is a participle, as in `judged_steps`."""
    word = name.strip("_").partition("_")[0]
    return word in _IRREGULAR or (word.endswith("ed") and word not in _NO_PARTICIPLES)


def prose_of(text: str) -> Counter[str]:
    """Words, sentences, pronouns and semicolons of a text."""
    return Counter(
        words=len(text.split()),
        sentences=max(1, len(_SENTENCE_ENDS.findall(text))),
        pronouns=len(_PRONOUNS.findall(text)),
        semicolons=text.count(";"),
    )


def _simple_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements without statements inside, and without docstrings."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, _SIMPLE) and not is_text:
            yield node


def _docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield docstring


def _bound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def prose_of_pages() -> dict[str, Counter[str]]:
    """Counts of the pages that are committed, by part of the documentation."""
    patterns = ["README.md", "C*.md", "SECURITY.md", "docs/*.md"]
    listed = ["git", "-C", str(ROOT), "ls-files", *patterns]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        part = next(part for begins, part in _PARTS.items() if name.startswith(begins))
        parts[part] += prose_of(prose((ROOT / name).read_text("utf-8")))
    return parts


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", page)


def _cells(row: Counter[str]) -> list[str]:
    return [
        str(row["files"]),
        str(row["lines"]),
        f"{row['tokens'] / row['lines']:.1f}",
        str(row["long"]),
        str(row["names"]),
        f"{row['nodes'] / row['statements']:.1f}",
        f"{100 * row['participles'] / max(1, row['functions']):.1f} %",
        *_rates(row),
    ]


def _rates(row: Counter[str]) -> tuple[str, str]:
    pronouns = 1000 * row["pronouns"] / max(1, row["words"])
    return f"{pronouns:.1f}", f"{100 * row['semicolons'] / max(1, row['sentences']):.0f}"


def _show(name: str, cells: Sequence[object]) -> None:
    print(f"{name:24}" + "".join(f"{cell!s:>16}" for cell in cells))


def main() -> None:
    """Print the figures of rooms, peers and pages."""
    by_room: dict[str, Counter[str]] = defaultdict(Counter)
    for path, module in modules():
        by_room[room_of(module) or ""] += figures_of(path)
    _show("room", _COLUMNS)
    for room in ROOMS:
        _show(room or "curvescope", _cells(by_room[room]))
    _show("all", _cells(sum(by_room.values(), Counter())))

    print()
    _show("peer", ("nodes/statement", "participles", "in docstrings", "in pages", "semicolons"))
    for peer, (nodes, participles, in_docstrings, in_pages, semicolons) in _PEERS.items():
        _show(peer, (nodes, f"{participles} %", in_docstrings, in_pages, semicolons))

    print()
    _show("documentation", ("words", "pronouns", "semicolons"))
    parts = prose_of_pages()
    parts["all"] = sum(parts.values(), Counter())
    for part, row in parts.items():
        _show(part, (row["words"], *_rates(row)))


if __name__ == "__main__":
    main()
