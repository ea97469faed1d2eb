"""The script of the GitHub action says each of three answers where GitHub shows it."""

import os
import subprocess
import sys

import pytest

from ..shared import ROOT

# Stands in for `curvescope`: it writes the summary of an answer, and archives.
COMMAND = """#!{python}
import pathlib, sys
words = sys.argv[1:]
if words[0] == "export":
    pathlib.Path(words[words.index("-o") + 1]).touch()
    sys.exit()
runs = pathlib.Path(words[words.index("--output") + 1])
for name in ("base", "head"):
    (runs / name).mkdir(parents=True)
if {answer!r}:
    said = "### Time per step: {answer}\\n\\n{sentence}\\n"
    pathlib.Path(words[words.index("--summary") + 1]).write_text(said)
sys.exit({code})
"""
WORSE = "Failed: head at batch 8 takes +28.4% (at least +26.4%), over 5.0%."
OPEN = "Could not tell: a growth of head at batch 8 is not ruled out: it may be up to 18.2%."
NONE = "No step time grew significantly and by more than 5.0%."


@pytest.mark.skipif(sys.platform == "win32", reason="the action runs bash")
@pytest.mark.parametrize(
    ("answer", "sentence", "code", "shown"),
    [
        ("worse", WORSE, 1, f"::error title=Step time::{WORSE}"),
        ("could not tell", OPEN, 0, f"::warning title=Step time::{OPEN}"),
        ("not worse", NONE, 0, f"::notice title=Step time::{NONE}"),
        ("", "", 2, "::error title=Curvescope::"),
    ],
)
def test_each_answer_is_shown_and_decides_the_job(tmp_path, answer, sentence, code, shown):
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in = COMMAND.format(python=sys.executable, answer=answer, sentence=sentence, code=code)
    for name, text in (("curvescope", stand_in), ("git", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    summary.write_text("")
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
        "STEP": "step.py:make_step",
        "BATCH": "8",
        "FAIL_OVER": "5%",
        "TIME_LIMIT": "60",
        "BASE": "main",
    }
    script = ROOT / ".github" / "compare.sh"
    done = subprocess.run(
        ["bash", str(script)], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == code
    assert shown in done.stdout
    assert output.read_text() == f"answer={answer or 'no answer'}\n"
    assert sentence in summary.read_text()
    assert (tmp_path / "curvescope-results" / "head.curvescope").exists()


def test_the_action_gives_the_script_what_it_reads():
    script, action = (ROOT / name for name in (".github/compare.sh", "action.yml"))
    text = script.read_text()
    for name in ("STEP", "BATCH", "FAIL_OVER", "TIME_LIMIT", "BASE"):
        assert f"${name}" in text
        assert f"{name}: ${{{{ inputs." in action.read_text()
