"""Names from files of strangers: none of them steers a terminal, turns text around, or is taken for
markup.
"""

import csv
import io
import itertools
import json
import shutil

import pytest

from curvescope.base.csv_cells import csv_text, harmless
from curvescope.base.escaping import escape_controls
from curvescope.cli import main

from ..analysis.ranks.planted_ranks import write_ranks
from ..curvescope.recordings import write_planted
from ..shared import ROOT

ESCAPE, TITLE, CSI = "\x1b[2Jcleared", "\x1b]0;owned\x07", "\x9b31mred"
TURNED = "\u202egnp.exe\u2066x\u200f"
UNSEEN = "\U000e0049\u200b\ufe0f"
MARKUP = "[/nothing][bold red]x[/] :boom:"
HTML = "<img src=x onerror=alert(1)>"
HOSTILE = "".join((ESCAPE, TITLE, CSI, TURNED, UNSEEN, MARKUP, HTML))
# Everything that a terminal may obey, line ends and tabs left out, what turns text around, and what
# nobody sees.
OBEYED = {chr(c) for c in (*range(0x20), *range(0x7F, 0xA0))} - set("\n\t") | set(
    "\u202a\u202b\u202d\u202e\u2066\u2067\u200f\U000e0049\u200b\ufe0f"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two recordings in which every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile")

    def rename(steps, kernels):
        kernels["name"] = HOSTILE + kernels["name"]
        kernels["layer"] = HOSTILE + kernels["layer"].fillna("none")
        kernels["op"] = HOSTILE + kernels["op"]

    lost = {HOSTILE: {"count": 3, "sentence": HOSTILE}}
    for name in ("first", "second"):
        write_planted(
            folder / name,
            change=rename,
            network=HOSTILE,
            mode=HOSTILE,
            lost=lost,
            device={"name": HOSTILE, "kind": "cuda"},
            protocol={"name": HOSTILE, "statistic": "median"},
            versions={"torch": HOSTILE},
            unmeasured=[{"batch": 32, "round": 0, "why": HOSTILE, "detail": HOSTILE}],
        )
    return folder


COMMANDS = [
    "explain first --all",
    "explain first --pair 4,8",
    "breakdown first --by layer",
    "breakdown first --by kernel --all",
    "breakdown first --by op",
    "compare first second --by kernel --all",
    "compare first second --fail-over 5%",
    "roofline first --by kernel",
    "roofline first --by kernel --csv",
    "compare --steps first second",
    "compare --steps first second --format csv",
    "compare --steps first second --format markdown",
    "runs .",
    "explain first --problem x",
]


@pytest.mark.first_rows(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_a_terminal_obeys_is_printed(runs, command, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert main(command.split()) == (2 if "--problem" in command else 0)
    out, err = capsys.readouterr()
    assert out or err
    assert not OBEYED & set(out + err)


@pytest.mark.first_rows(2)
@pytest.mark.parametrize(
    "command",
    ["explain first", "breakdown first", "compare first second", "runs .", "compare --steps first"],
)
def test_json_holds_the_names_as_they_are_and_prints_none_raw(runs, command, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert main([*command.split(), "--json"]) == 0
    out = capsys.readouterr().out
    assert not OBEYED & set(out)
    assert ESCAPE in json.dumps(json.loads(out), ensure_ascii=False).encode().decode(
        "unicode_escape", "replace"
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Recordings of four ranks whose layers, folders and collectives have hostile names; one rank
    is slow.
    """

    def rename(kernels):
        placed = kernels["layer"].notna()
        for column in ("name", "layer"):
            kernels.loc[placed, column] = HOSTILE + kernels.loc[placed, column]

    def slow(rank, step, layer):
        return 1.4 if (rank, layer) == (2, "conv2") else 1.0

    name = "rank{}" + f"{ESCAPE}{TURNED}".replace("/", "")
    root = write_ranks(
        tmp_path_factory.mktemp("job"), 4, name=name, slow=slow, change=rename, network=HOSTILE
    )
    (root / f"rank9{ESCAPE}").mkdir()
    (root / f"rank9{ESCAPE}" / "recording.json").write_text(ESCAPE)
    return root


@pytest.mark.slow
def test_ranks_print_nothing_that_a_terminal_obeys(job, capsys):
    assert main(["scale", "read", str(job)]) == 0
    out, err = capsys.readouterr()
    assert "conv2" in out
    assert not OBEYED & set(out + err)
    assert main(["scale", "read", str(job), "--json"]) == 0
    out = capsys.readouterr().out
    assert not OBEYED & set(out)
    assert json.dumps(HOSTILE)[1:-1] in out


def test_every_command_prints_by_the_console_that_lets_nothing_through():
    """`ranks` had one of rich's own."""
    for path in (
        p
        for room in ("curvescope", "analysis", "profiling", "kernels")
        for p in (ROOT / room).rglob("*.py")
    ):
        if path.name != "terminal.py":
            assert "Console(" not in path.read_text().replace("_TextConsole(", ""), path


def test_markup_of_the_terminal_is_text(runs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # a file gets whole names
    assert main(["breakdown", str(runs / "first"), "--by", "layer"]) == 0
    assert MARKUP in capsys.readouterr().out


def test_the_report_neither_runs_nor_turns_them(runs, tmp_path):
    assert main(["report", str(runs / "first"), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert HTML not in page
    assert not OBEYED & set(page)


def test_messages_about_hostile_files(tmp_path, capsys):
    file = tmp_path / f"{ESCAPE}{TURNED}.json"
    file.write_text('{"traceEvents": [{"ph": "X", "name": "' + TURNED + '"}], "x": ' + "\x1b[2J}")
    assert main(["import", str(file), "-o", str(tmp_path / "r")]) == 2
    assert not OBEYED & set(capsys.readouterr().err)
    shutil.rmtree(tmp_path / "r", ignore_errors=True)


def test_what_is_harmless_stays():
    text = "conv3_1 → μs é 卷积 🙂 עברית\n\tx"
    assert escape_controls(text) == text
    assert escape_controls("a\x1b[31m\u202eb\ud800\r") == "a\u241b[31m\ufffdb\ufffd\u240d"


FORMULAS = ("=HYPERLINK(1)", "@SUM(A1)", "+1+1", "-2+3", "\t=1", "\r=1")
HARMLESS = ("conv1", "-1.5", "+3e5", "a=b", "", "'=1")


def test_no_cell_of_csv_is_a_formula(tmp_path):
    names = itertools.cycle([*FORMULAS, *HARMLESS])

    def rename(steps, kernels):
        kernels["name"] = [next(names) for _ in range(len(kernels))]

    write_planted(tmp_path / "first", change=rename, network="=1+1")
    assert main(["export", str(tmp_path / "first"), "--csv", "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "kernels.csv").read_bytes().decode()
    cells = {cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row}
    assert "'=HYPERLINK(1)" in cells
    for cell in cells:
        assert not cell.startswith(("=", "@", "\t", "\r"))
        assert not cell.startswith(("+", "-")) or float(cell) is not None


def test_a_table_of_times_has_no_formula_either():
    assert (
        csv_text(["a", "b"], [{"a": "=1", "b": None}, {"a": -3.5, "b": "-x"}])
        == "a,b\n'=1,\n-3.5,'-x\n"
    )
    assert [harmless(text) for text in HARMLESS] == [*HARMLESS]
