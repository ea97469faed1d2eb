"""What a new user meets first: typing errors, steps that fail, output that is cut off."""

import subprocess
import sys

import pytest

from ..shared import EXAMPLE


@pytest.fixture
def step_file(tmp_path):
    """A file with functions that make no step."""
    path = tmp_path / "train.py"
    path.write_text(
        "def main():\n    pass\n\n"
        "def make_step(batch):\n    def step():\n        raise SystemExit(3)\n    return step\n"
    )
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diagnos",), "invalid choice: 'diagnos'; did you mean diagnose?"),
        (("bench", "gem"), "invalid choice: 'gem'; did you mean gemm?"),
        (("diagnose", "alexnet", "--batch", "-3..4"), "--batch -3..4: write sizes of at least 1"),
    ],
)
def test_what_is_wrong_is_said(words, said, command, tmp_path):
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_function_that_takes_no_batch_is_refused_and_leaves_no_folder(step_file, tmp_path):
    words = ("diagnose", "--step", "train.py:main", "--quick", "--batch", "1,2")
    command = [sys.executable, "-m", "curvescope", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "train.py:main(batch=1) cannot be called: too many positional arguments" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_step_that_exits_says_so(step_file, command, tmp_path):
    """The command ended with the step's exit code, and without a word."""
    words = (
        "diagnose",
        "--step",
        "train.py:make_step",
        "--quick",
        "--batch",
        "1,2",
        "--experiments",
        "0",
    )
    done = command(*words, cwd=tmp_path, code=2)
    assert "call 1 of the step raised SystemExit: 3 (train.py, line 6)" in done.stderr


def test_output_that_is_cut_off_is_no_failed_check():
    """`curvescope explain RUN | head` ended with exit code 1."""
    command = [sys.executable, "-m", "curvescope", "explain", str(EXAMPLE), "--all"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert (process.returncode, errors) == (0, "")
