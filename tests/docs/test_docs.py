"""The documentation: what is generated is current, what is a command runs, and prints what the page
shows.
"""

import ast
import fnmatch
import json
import re
import shlex
from dataclasses import replace

import pytest

from benchmarks import evidence, framework_table, planted_causes
from curvescope.analysis.causes import CAUSES, NOT_SIGNIFICANT, UNEXPLAINED
from curvescope.analysis.causes.catalogue import OF_PROFILES
from curvescope.base.numbers import number
from curvescope.cli import COMMANDS, main
from curvescope.commands import diagnose
from curvescope.commands.bench import BENCHES
from curvescope.profiling.measure import versions
from curvescope.profiling.measure.protocol import PROTOCOLS

from ..curvescope.narrow_alexnet import narrow
from ..shared import ROOT, load_script
from ..tables import ask_each, grade
from . import short_quick

DOCS = ROOT / "docs"
run_blocks = load_script("docs/run_blocks.py")
reference = load_script("docs/generate_reference.py")
PAGES = sorted(set(DOCS.rglob("*.md")) - set(reference.BUILT))
RUN = [
    p
    for p in PAGES
    if any(b.kind in ("console", "sh") for b in run_blocks.blocks_of(p.read_text()))
]


@pytest.mark.parametrize(
    "path",
    grade(
        list(reference.COMMITTED),
        quick={path for path in reference.COMMITTED if path.name != "h100.md"},
        in_ci=reference.COMMITTED,
    ),
    ids=lambda path: path.name,
)
def test_reference_is_what_the_code_says(path):
    assert path.read_text() == reference.COMMITTED[path](), (
        "run `python docs/generate_reference.py`"
    )


def test_pages_of_the_site_are_tables_and_not_committed():
    """A change of the code is no change of theirs to read."""
    for write in reference.BUILT.values():
        page = write()
        assert page.startswith("# ")
        assert page.count("\n| ") > 10
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for page in reference.BUILT:
        name = page.relative_to(ROOT).as_posix()
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored), name


QUICK = [page for page in RUN if page.name in ("server.md", "step.md")]
# Pages with commands that take long: `test_slow_commands_run` runs all of their commands.
LONG = [page for page in RUN if "<!-- slow -->" in page.read_text()]
OTHERS = [page for page in RUN if page in QUICK or page not in LONG]


@pytest.mark.parametrize(
    "page", grade(OTHERS, quick=QUICK, in_ci=OTHERS), ids=lambda page: str(page.relative_to(DOCS))
)
def test_commands_run_and_print_what_the_page_shows(page):
    run_blocks.run_page(page)


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG, ids=lambda page: page.stem)
def test_slow_commands_run(page, monkeypatch):
    """With the least rounds and processes, no experiments and a small AlexNet: what is asked is
    whether they run.
    """
    narrow(monkeypatch)
    monkeypatch.setitem(PROTOCOLS, "quick", short_quick.SHORT)
    # A process has as many rounds as these and what replaces them where all are disturbed.
    of_one_process = versions.ROUNDS_OF_PROCESS // 2
    least = replace(versions.PROTOCOL, rounds=(of_one_process, of_one_process))
    monkeypatch.setattr(versions, "PROTOCOL", least)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p {short_quick.__name__}")
    monkeypatch.setattr(diagnose, "QUICK_EXPERIMENTS_S", 0.0)
    run_blocks.run_page(page, slow=True)


@ask_each("page", [*PAGES, ROOT / "README.md"])
def test_every_command_line_is_one_that_the_commands_take(page):
    for line in run_blocks.command_lines(page.read_text()):
        command, *arguments = shlex.split(re.split(r" [|>] ", line)[0])[1:]
        assert command in COMMANDS, line
        names = [command]
        if command == "bench":
            names, arguments = (
                (BENCHES, []) if arguments[1:2] == ["|"] else ([arguments[0]], arguments[1:])
            )
        if not {"--help", "--version"} & set(arguments):
            for name in names:
                check((BENCHES if command == "bench" else COMMANDS)[name], arguments, line)


def check(command, arguments, line):
    def refuse(message):
        raise AssertionError(f"{line}: {message}")

    parser, _ = command.build()
    parser.error = refuse
    parser.parse_args(arguments)


# What of the commands of the start page is not run here, and why; the other pages show most of them
# on something small.
NOT_RUN = {
    "diagnose": "measures a network for minutes",
    "confirm": "runs experiments, on a recording that is not here",
    "sweep": "measures networks for an hour",
    "explain RUN --as-env": "this modelled run has no measured change",
    "explain RUN --diff": "a file that is not here",
    "sizes": "a file that is not here",
    "attach": "a program that is not here",
    "explain RUN 1": "this modelled run has no finding",
}


@pytest.mark.slow
def test_commands_of_the_start_page_run_where_they_need_neither_time_nor_strangers(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    lines = run_blocks.command_lines((DOCS / "index.md").read_text())
    (modelled,) = [line for line in lines if "--card" in line]
    assert main([*shlex.split(modelled)[1:], "-o", "RUN"]) == 0
    ran = 0
    for line in lines:
        if line == modelled or line.removeprefix("curvescope ").startswith(tuple(NOT_RUN)):
            continue
        capsys.readouterr()
        assert main(shlex.split(line)[1:]) == 0, line
        assert capsys.readouterr().out, line
        ran += 1
    assert ran >= 5


@ask_each("page", [*PAGES, ROOT / "README.md"])
def test_python_of_the_pages_is_python(page):
    for block in run_blocks.blocks_of(page.read_text()):
        if block.kind == "python":
            ast.parse(block.body)


@ask_each("page", [*PAGES, *sorted(ROOT.glob("*.md"))])
def test_files_that_the_pages_name_exist(page):
    named = re.findall(
        r"`(?:python )?((?:benchmarks|tests|docs|examples)/[\w/]+\.(?:py|toml|jsonl?))",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_the_readme_shows_what_is_printed_of_the_kept_run():
    printed = run_blocks.run("curvescope explain examples/recordings/alexnet-cpu", ROOT)
    (shown,) = re.findall(
        r"```\n(alexnet training .*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert printed == shown


def test_the_readme_says_how_often_planted_causes_were_confirmed():
    measured = [re.search(r"\*\*(\d+ of \d+)", figure)[1] for figure in planted_causes.figures()]
    readme = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(
        r"right cause .*? (\d+ of \d+) .*?, a wrong one in (\d+ of \d+)\. .*? (\d+ of \d+) sweeps",
        readme,
    )
    assert [*(said.groups() if said else ())] == measured, (
        f"README.md's sentence on planted causes has to say {', '.join(measured)}, as "
        "docs/internals/evidence.md does"
    )


@pytest.mark.slow
def test_the_notebook_has_the_outputs_of_its_cells():
    runner = load_script("docs/run_notebook.py")
    kept = json.loads(runner.NOTEBOOK.read_text())
    run = runner.executed(kept, runner.NOTEBOOK.parent)
    assert [texts(cell) for cell in run["cells"]] == [texts(cell) for cell in kept["cells"]], (
        "run `python docs/run_notebook.py`"
    )
    assert "text/html" in kept["cells"][-1]["outputs"][-1]["data"]


def texts(cell):
    """What a cell of a notebook prints, without its page."""
    return [
        "".join(one.get("text") or one["data"]["text/plain"]) for one in cell.get("outputs", ())
    ]


LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@ask_each("page", sorted(ROOT.glob("*.md")))
def test_links_of_pages_outside_the_site_lead_somewhere(page):
    """Those of the site are checked when it is built."""
    links = [link for link in LINK.findall(page.read_text()) if not re.match(r"\w+:", link)]
    assert not [link for link in links if not (ROOT / link).exists()]


def test_a_wrong_link_of_the_site_fails_its_build():
    """Found by use: with --quiet, mkdocs drops its warnings before --strict counts them, and every
    link passed.
    """
    (build,) = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line
    ]
    assert "--strict" in build
    assert "--quiet" not in build


PAGE = """
```console
$ echo one; echo two
one
two
```
"""


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        ("one\ntwo", True),
        ("...\ntwo", True),
        ("one\n...", True),
        ("one\nthree", False),
        ("one", False),
        ("...", True),
    ],
)
def test_output_is_compared(tmp_path, shown, right):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("one\ntwo", shown))
    if right:
        assert run_blocks.run_page(page) == 1
        return
    with pytest.raises(run_blocks.BlockError, match="prints"):
        run_blocks.run_page(page)
    run_blocks.run_page(page, write=True)
    assert page.read_text() == PAGE


def test_what_is_left_out_of_a_page_stays_left_out_when_it_is_written_anew():
    shown = "...\nconv1 1.5 ms\n...\ntotal 3.0 ms\n"
    assert run_blocks.renewed(shown, "head\nconv1 1.7 ms\nconv2 1.2 ms\ntotal 2.9 ms \n") == (
        "...\nconv1 1.7 ms\n...\ntotal 2.9 ms\n"
    )


@pytest.mark.parametrize(
    "command", ["false", "false | true", "curvescope doctor --card no_such_gpu"]
)
def test_a_command_that_fails_is_not_passed_over(tmp_path, command):
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{command}\n```\n")
    with pytest.raises(run_blocks.BlockError, match="exit code"):
        run_blocks.run_page(page)


def test_marks_are_obeyed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: a.txt -->\n```text\nhello\n```\n\n```console\n$ cat a.txt\nhello\n```\n"
        "<!-- slow -->\n```sh\nfalse\n```\n<!-- not run: it fails -->\n```sh\nfalse\n```\n"
    )
    assert run_blocks.run_page(page) == 1
    with pytest.raises(run_blocks.BlockError, match="exit code"):
        run_blocks.run_page(page, slow=True)


def test_the_page_on_answers_has_a_row_for_every_cause():
    page = (DOCS / "answer.md").read_text()
    of_sweeps, of_profiles = page.split("\n## Causes")[1:3]
    assert set(CAUSES) == first_cells(of_sweeps) - {"cause"}
    assert {cause.name for cause in OF_PROFILES} == first_cells(of_profiles.split("\n## ")[0]) - {
        "cause"
    }


def test_figures_of_trust_are_those_of_the_pages_that_measure_them():
    """A bold figure of a row stands, bold, on the page that the row links."""
    page = DOCS / "trust.md"
    rows = re.findall(r"^\|.*\*\*.*", page.read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for row in rows:
        (link,) = re.findall(r"\]\((\S+\.md)\)", row)
        measured = bold_figures((page.parent / link).read_text())
        assert bold_figures(row) <= measured, row


def test_pages_on_the_gtx_1080_follow_the_rules_of_the_framework_that_was_published():
    """Torch's rules name another cause than TensorFlow 1.0's, which was measured."""
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    modelled = [line for line in lines if "vgg_a --card gtx1080" in line and "64,128" in line]
    assert len(modelled) >= 3
    assert all("--framework tensorflow1.0" in line for line in modelled)


def test_the_page_of_frameworks_has_the_times_and_layers_of_the_kept_runs():
    """Of runs with four processes of each framework or more: fewer decide nothing."""
    page = (DOCS / "case-studies" / "frameworks.md").read_text()
    measured = [row for row in framework_table.shown() if "failed" not in row]
    rows = [row for row in measured if least_processes(row) >= 4]
    assert re.findall(r"^\| \w+ \d+ \| forward.*", page, re.MULTILINE) == [
        line_of_times(row) for row in rows
    ]
    assert re.findall(r"^\| \w+ \d+ \| (?!forward).*", page, re.MULTILINE) == [
        line_of_layers(row) for row in rows if row["mode"] == "forward+backward"
    ]


def least_processes(row):
    return min(side["processes"] for side in row["frameworks"].values())


def line_of_times(row):
    cells = [
        f"{row['network']} {row['batch']}",
        row["mode"],
        number(row["frameworks"]["torch"]["ms"]),
    ]
    for pair in row["pairs"][:2]:
        times, low, high = pair["times"]
        cells.append(
            f"{times:.2f}× ({low:.2f} … {high:.2f})" + ", open" * (not pair["significant"])
        )
    return f"| {' | '.join(cells)} |"


def line_of_layers(row):
    """The layer that makes most of the difference, of those that both frameworks name."""
    cells = [f"{row['network']} {row['batch']}"]
    for pair in row["pairs"][:2]:
        layer = next(layer for layer in pair["layers"] if None not in layer["ms"])
        name = re.sub(r" \(\w+\)", "", layer["layer"])  # without its class
        cells.append(f"{name} {' → '.join(map(number, layer['ms']))}")
    return f"| {' | '.join(cells)} |"


def bold_figures(text):
    """What is bold, with one spelling of percent."""
    return {figure.replace(" %", "%") for figure in re.findall(r"\*\*(.+?)\*\*", text)}


def test_every_table_of_causes_has_a_row_for_every_cause():
    head = (DOCS / "internals" / "causes.md").read_text()
    factors = reference.factors_page()
    experiments = factors.partition("## Which factors test a cause")[2]
    for table, left_out in ((head, set()), (experiments, {NOT_SIGNIFICANT, UNEXPLAINED})):
        assert set(CAUSES) - first_cells(table) == left_out
    # Sweeps of planted causes take hours: a cause that came after the last ones has no row.
    planted = evidence.read_tables()["planted_recordings"].column("planted")
    assert len(set(CAUSES) & set(planted)) >= 28


def test_every_table_that_the_page_of_evidence_names_is_kept():
    page = (DOCS / "internals" / "evidence.md").read_text()
    printed = " ".join(re.findall(r"`python benchmarks/evidence\.py ([a-z_ ]+)`", page)).split()
    behind = re.findall(r"\(`([a-z_]+)`\)", page)
    assert len(printed) > 5
    assert not {*printed, *behind} - set(evidence.read_tables())


def first_cells(table):
    """The first cells of the rows of a table, without a number before and brackets behind."""
    return set(re.findall(r"^\| (?:\d+ )?([^|(]+?) (?:\([^|]*\) )?\|", table, re.MULTILINE))


def test_every_page_for_users_is_in_the_index_for_agents():
    """With its title, and text that leads to no block that the index leaves out."""
    text = (DOCS / "llms.txt").read_text()
    rows = re.findall(r"^- \[(.+)\]\((\w+)\.html\): (.+)$", text, re.MULTILINE)
    assert {page for _, page, _ in rows} == {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert all(summary.endswith(".") for _, _, summary in rows)
