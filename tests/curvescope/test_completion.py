"""Completion scripts, by the shells themselves where they are here."""

import shutil
import subprocess

import pytest


def completions(script, words):
    """What bash would offer for the last word of a command line."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"""
    {script}
    COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE="{" ".join(words)}"; COMP_POINT=${{#COMP_LINE}}
    function=$(complete -p curvescope | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    $function curvescope '{words[-1]}' '{words[-2]}' 2>/dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """  # noqa: E501
    return set(
        subprocess.run(
            ["bash", "-c", asked], capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.fixture(scope="module")
def bash_script(command, tmp_path_factory):
    return command("completion", "bash", cwd=tmp_path_factory.getbasetemp(), code=0).stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["curvescope", "di"], {"diagnose"}),
        (["curvescope", "breakdown", "--b"], {"--by", "--batch"}),
        (["curvescope", "breakdown", "--by", "ke"], {"kernel"}),
        (["curvescope", "bench", "gem"], {"gemm"}),
    ],
)
def test_bash_offers_commands_options_and_values(bash_script, words, offered):
    assert offered <= completions(bash_script, words)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(shell, tmp_path, text_of):
    script = text_of("completion", shell)
    assert "diagnose" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)
