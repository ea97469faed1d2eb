"""Shortens names of kernels, operators, layers and devices in the middle, by what matters least in
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from ...profiling.attribution.kernel_names import short_name

CUT = "…"  # stands for what is left out
CHANGE = " → "  # stands between the two names of a change
_LONGEST = 4096  # characters of a name that are looked at: its ends
_NO_SPACES = re.compile("[^ ]+")
_PART_IN_PARENTHESES = re.compile(r"(?<!operator)/\(")  # of a layer: execute/(Unnamed Layer* 76)
_INNERMOST = re.compile(r"<[^<>]*>")
_NAMESPACES = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_~])")
_CLASS = re.compile(r" \([^()]*\)")  # of a layer: fc6 (Linear) forward
# of a layer, without its last part
_PATH = re.compile(r"(?<![\w.-])([\w-]+)(?:\.[\w-]+){2,}(?=\.[\w-]+)")
_FIRST = re.compile(rf"(?<![\w-])[\w-]+\.(?={CUT})")  # of such a path
# What a heading can do without: "NVIDIA GeForce GTX 1080 (modelled, cudnn7)" is the GTX 1080.
_MAKER = re.compile(
    r"NVIDIA |AMD |Intel\(R\) |GeForce |Tesla |Quadro |\((?:R|TM)\)| CPU @ .*|-\d+GB\b"
    r"| \((?:modelled|published)\b[^()]*\)"
)
_ROOM_TO_DIFFER = 8  # cells that a word kept before names has to leave to them
_WORD = re.compile(r".+?(?:[_.:,/<>\s-]+|(?<=[a-z\d])(?=[A-Z])|$)")


def readable(name: str) -> str:
    """A name without what only its compiler needs."""
    ends = []
    for end in _ends(name).split(CHANGE):
        ends.append(short_name(end) if _is_signature(end) else end)
    return CHANGE.join(ends)


def _ends(name: str) -> str:
    """A name of at most `_LONGEST` characters: without its middle, if it is longer."""
    if len(name) <= _LONGEST:
        return name
    half = _LONGEST // 2
    return name[:half] + CUT + name[1 - half :]


def _is_signature(name: str) -> bool:
    """Whether a compiler wrote it: with template arguments, an anonymous namespace or arguments of
    a member.
    """
    if (
        name.startswith("void ")
        or "(anonymous namespace)" in name
        or -1 < name.find("<") < name.rfind(">")
    ):
        return True
    closed = name.rfind(")")
    for word in _NO_SPACES.finditer(name[: closed + 1]):
        member = name.find("::", word.start(), word.end())
        if _PART_IN_PARENTHESES.search(word[0]):
            return False
        if member >= 0 and -1 < name.find("(", member + 2, word.end()) < closed:
            return True
    return False


def fit(name: str, width: int) -> str:
    """A name in at most `width` cells of a terminal, with `…` for the words left out. Template
    arguments go first, the innermost before the others, then namespaces, the class and the inner
    path of a layer, and at last words in the middle.
    """
    if len(name) <= _LONGEST and cell_len(name) <= width:
        return name
    name = text = _ends(name)
    for text in _shorter(name):
        if cell_len(text) <= width:
            return text
    return _cut(text, width)


def fit_all(names: Sequence[str], width: int) -> list[str]:
    """Names in at most `width` cells; names that would look alike show where they differ, if that
    fits.
    """
    shown = {name: fit(name, width) for name in names}
    for same in _alike(shown):
        texts = {name: readable(name) for name in same}
        shown |= _by_arguments(texts, width) or _tell_apart(texts, width)
    return [shown[name] for name in names]


def _by_arguments(texts: Mapping[str, str], width: int) -> dict[str, str]:
    """Texts by name: one template's name, then where its arguments differ; empty if it is not one,
    or that is alike.
    """
    parts = {name: text.partition("<") for name, text in texts.items()}
    templates = {template for template, _, _ in parts.values()}
    if len(templates) > 1 or not all(arguments for _, _, arguments in parts.values()):
        return {}
    template = _cut(templates.pop(), width * 3 // 5)
    arguments_of = {name: arguments for name, (_, _, arguments) in parts.items()}
    room = width - cell_len(template) - 1
    distinct = _tell_apart(arguments_of, room)
    if len(set(distinct.values())) < len(distinct):
        return {}
    return {name: f"{template}<{arguments}" for name, arguments in distinct.items()}


def _tell_apart(texts: Mapping[str, str], width: int, kept: str = "") -> dict[str, str]:
    """Texts by name, cut to a width, after a word that tells them from others; those alike begin
    where they differ.
    """
    room = width - cell_len(kept)
    shown, words_of = {}, {}
    for name, text in texts.items():
        shown[name] = kept + _cut(text, room)
        words_of[name] = _WORD.findall(text)
    for same in _alike(shown):
        first, *_ = words = [words_of[name] for name in same]
        common = _common(words)
        if common and (begin := len("".join(first[:common]))) > len(CUT):
            candidate = max(
                (_common([first, words_of[name]]) for name in texts if name not in same),
                default=common,
            )
            keep = (
                "".join([CUT * bool(candidate), *first[candidate : candidate + 1]])
                if candidate < common
                else ""
            )
            if width - cell_len(keep) < _ROOM_TO_DIFFER:
                keep = ""
            cut = "" if keep and candidate + 1 == common else CUT
            shown |= _tell_apart({name: cut + texts[name][begin:] for name in same}, width, keep)
    return shown


def _common(names: Sequence[Sequence[str]]) -> int:
    """How many words names have alike at their beginning; 0 where none differs."""
    for count, words in enumerate(zip(*names, strict=False)):
        if len(set(words)) > 1:
            return count
    return 0


def _alike(shown: Mapping[str, str]) -> list[list[str]]:
    """The names whose texts are the same, in groups of two and more."""
    names: dict[str, list[str]] = {}
    for name, text in shown.items():
        names.setdefault(text, []).append(name)
    return [same for same in names.values() if len(same) > 1]


def short_devices(devices: Sequence[str]) -> dict[str, str]:
    """Devices by name, with a short name for headings; the full one where two would be alike."""
    short = {}
    for name in devices:
        model = _MAKER.sub("", name)
        short[name] = model.strip() or name
    counts = Counter(short.values())
    for name, text in short.items():
        if counts[text] > 1:
            short[name] = name
    return short


def _shorter(name: str) -> Iterator[str]:
    text = readable(name)
    yield text
    while _is_signature(name) and _INNERMOST.search(text):
        yield _INNERMOST.sub(f"<{CUT}>", text)
        text = _INNERMOST.sub("", text)
        yield text
    for pattern, instead in ((_NAMESPACES, ""), (_CLASS, ""), (_PATH, rf"\1.{CUT}"), (_FIRST, "")):
        text = pattern.sub(instead, text)
        yield text


def _cut(text: str, width: int) -> str:
    """A text of at most `width` cells: words from both ends, two from its beginning for each from
    its end.
    """
    if cell_len(text) <= width:
        return text
    words, head, tail = _WORD.findall(text), "", ""
    while words:
        room = width - cell_len(head + CUT + tail)
        at_end = cell_len(head) > 2 * cell_len(tail)
        if cell_len(words[-1 if at_end else 0]) > room:
            at_end = not at_end and bool(head)  # the other end may still fit
        if cell_len(words[-1 if at_end else 0]) > room:
            break
        if at_end:
            tail = words.pop() + tail
        else:
            head += words.pop(0)
    if head and tail:
        return head.rstrip() + CUT + tail
    right = max(width - 1, 0) // 3
    left = max(width - 1 - right, 0)
    begin = set_cell_size(text, left)
    end = set_cell_size(text[::-1], right)[::-1]
    sign = CUT if width > 0 else ""
    return begin.rstrip() + sign + end.lstrip()


def distinct_parts(names: Sequence[str]) -> list[str]:
    """The names without the beginning that all share, up to its last separator; e.g. batch1 and
    batch2.
    """
    alike = ""
    for letter, *others in zip(*names, strict=False):
        if not others or set(others) != {letter}:
            break
        alike += letter
    start = max(alike.rfind(separator) for separator in "_-./ ") + 1
    parts = [name[start:] for name in names]
    return parts if all(parts) else list(names)
