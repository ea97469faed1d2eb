"""`explain --diff`: a patch of the user's file, for changes of one line whose place is known."""

import subprocess

import pytest

from curvescope.patching import EDITS, NoPlaceError, apply_change

from ..shared import PROFILES
from ..tables import ask_each
from .recordings import write_planted
from .test_as_environment import tested  # noqa: F401 - a fixture

TRACE = PROFILES / "kineto_resnet50_w0_a.pt.trace.json.gz"
TRAIN = """\
import torch
from torch.utils.data import DataLoader

from my_data import images  # größer


def main():
    model = make()  # a module
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,  # of the paper
    )
    for batch in DataLoader(images, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
CHANGED = {
    "fused_optimizer": "        lr=1e-3, fused=True,  # of the paper",
    "loader_workers": "    for batch in DataLoader(images, batch_size=32, shuffle=True, "
    "num_workers=4, persistent_workers=True):",
    "channels_last": "    model = model.to(memory_format=torch.channels_last)",
    "compiled": "    model = torch.compile(model)",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = True",
}


@ask_each("name", EDITS)
def test_a_change_is_one_new_line_and_the_others_stay(name):
    before, after = TRAIN.split("\n"), apply_change(TRAIN, name).split("\n")
    (line,) = [line for line in after if line not in before]
    assert line == CHANGED[name]
    kept = [old for old in after if old != line]
    assert len(before) - len(kept) == (len(after) == len(before))
    assert [old for old in before if old in kept] == kept


def test_a_line_is_put_behind_the_module_and_behind_the_imports():
    lines = apply_change(TRAIN, "channels_last").split("\n")
    assert lines[lines.index(CHANGED["channels_last"]) - 1] == "    model = make()  # a module"
    lines = apply_change(TRAIN, "tf32").split("\n")
    assert lines[lines.index(CHANGED["tf32"]) - 1].startswith("from my_data import")


@ask_each(
    ("name", "old", "new", "why"),
    [
        ("fused_optimizer", "AdamW(", "Lion(", "makes no optimizer"),
        ("fused_optimizer", "lr=1e-3,", "fused=False,", "has fused already"),
        ("fused_optimizer", "lr=1e-3,", "lr=(1e-3),", "a form that is not changed by itself"),
        ("loader_workers", "def main", "x = DataLoader(y)\ndef main", "makes 2 DataLoaders"),
        ("loader_workers", "shuffle=True", "num_workers=0", "has num_workers already"),
        ("channels_last", "= make()", "= make(); model.train()", "more than one statement"),
        ("channels_last", "model = make()", "model = make()\n    model = x", "assigned 2 times"),
        ("compiled", "import torch\n", "from torch import optim\n", "no line `import torch`"),
        ("tf32", "import torch\n", "", "no line `import torch`"),
    ],
)
def test_without_one_place_nothing_is_changed(name, old, new, why):
    assert old in TRAIN
    with pytest.raises(NoPlaceError, match=why):
        apply_change(TRAIN.replace(old, new, 1), name)


def test_lines_keep_their_ends():
    windows = TRAIN.replace("\n", "\r\n")
    for name in EDITS:
        after = apply_change(windows, name)
        assert after.count("\n") == after.count("\r\n")


@pytest.mark.slow
def test_what_a_profile_suggests_is_a_patch_that_git_applies(tmp_path, monkeypatch, text_of):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    patch = text_of("explain", TRACE, "--diff", "train.py")
    assert (tmp_path / "train.py").read_text() == TRAIN
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "apply"], input=patch, text=True, check=True)
    assert CHANGED["loader_workers"] in (tmp_path / "train.py").read_text()


@pytest.mark.slow
def test_each_change_says_what_it_saves_beside_the_patch(tmp_path, monkeypatch, capsys):
    from curvescope.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    assert main(["explain", str(TRACE), "--diff", "train.py"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "worker processes: suggested, at most 33" in said


@pytest.mark.slow
def test_a_measured_change_without_a_place_is_named(tested, tmp_path, refusal_of):  # noqa: F811
    (tmp_path / "train.py").write_text(TRAIN)
    said = refusal_of("explain", tested, "--diff", tmp_path / "train.py")
    assert "Not in the patch: keep freed memory in the process" in said
    assert "it saved 62 %" in said


@ask_each(
    ("content", "why"),
    [(b"def x(:", "no Python file"), (b"\xff\xfe", "no Python file"), (None, "no Python file")],
)
def test_what_is_no_python_file_is_refused(content, why, tmp_path, refusal_of):
    file = tmp_path / "train.py"
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    recording = tmp_path / "r"
    if not recording.exists():
        write_planted(recording)
    assert why in refusal_of("explain", recording, "--diff", file)
