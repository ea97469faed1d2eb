import io
import re

from rich.text import Text

from curvescope.analysis.render.terminal import console, print_prose, progress_bars

from ...shared import ROOT


def test_bars_leave_no_line_where_standard_error_is_no_terminal(capsys):
    with progress_bars(10) as bars:
        bars.update(bars.add_task("reading"), completed=1, total=2)
    assert capsys.readouterr().err == ""


def test_bars_are_drawn_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress_bars(10) as bars:
        bars.update(bars.add_task("compiling", total=2), completed=1)
    assert "compiling" in capsys.readouterr().err


def test_a_sentence_wraps_between_words_on_a_terminal_only(capsys, monkeypatch):
    sentence = (
        "Lost: 3 kernels, memcpy and memset whose launch was not recorded, and two more that "
        "were too long for a line"
    )
    monkeypatch.delenv("COLUMNS", raising=False)
    print_prose(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setenv("COLUMNS", "40")
    print_prose(sentence, stderr=True)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == sentence


STYLE = re.compile(
    r'"((?:bold|dim|italic|underline|red|green|yellow|blue|cyan|magenta|white|bright_\w+)(?: '
    r'\w+)*)"'
)
MEANINGS = {"bold", "dim", "yellow", "green", "bold green", "red", "bold red"}


def test_every_colour_has_one_of_the_written_meanings():
    sources = [
        path
        for folder in ("analysis/render", "curvescope")
        for path in (ROOT / folder).rglob("*.py")
    ]
    used = {style for path in sources for style in STYLE.findall(path.read_text())}
    assert used == MEANINGS


def test_no_colour_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = console(file=io.StringIO(), force_terminal=True, width=80)
    for style in MEANINGS:
        shown.print(Text("words", style))
    shown.print(Text("heat", "black on rgb(214,69,61)"))
    codes = {
        code
        for found in re.findall(r"\x1b\[([\d;]*)m", shown.file.getvalue())
        for code in found.split(";")
    }
    assert codes <= {"0", "1", "2"}  # bold and dim are no colours
