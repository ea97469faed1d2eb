"""Secrets of the environment and of command lines do not get into recordings; no command goes through a shell."""

import ast
import gzip
import sys
from pathlib import Path

import pytest

from curvescope.base.masking import without_secrets
from curvescope.cli import main

from ..shared import ROOT

PLANTED = "pl4nted-s3cret-7f1c"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["env", "API_KEY=abc", "train.py"], ["env", "API_KEY=***", "train.py"]),
        (["t", "--hf-token", "abc", "--token", "--fast"], ["t", "--hf-token", "***", "--token", "--fast"]),
        (["t", "s3://me:abc@host/x"], ["t", "s3://***@host/x"]),
        (["t", f"prefix{PLANTED}suffix"], ["t", "prefix***suffix"]),
        (["t", "--max-tokens", "128", "--tokenizer=bert"], ["t", "--max-tokens", "128", "--tokenizer=bert"]),
    ],
)  # fmt: skip
def test_command_lines(command, kept):
    environment = {"MY_ACCESS_KEY": PLANTED, "DB_PASSWORD": "abc", "HOME": "train.py"}
    assert without_secrets(command, environment) == kept


def whole(folder):
    """Every byte below a folder, packed or not: Parquet's pages are read through the tables."""
    import pyarrow.parquet as pq

    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path).encode() + path.read_bytes()
            if path.suffix == ".parquet":
                yield str(pq.read_table(path).to_pylist()).encode() + str(pq.read_schema(path)).encode()


@pytest.mark.parametrize(
    "arguments",
    [
        ["record", "-o", "r", "--", sys.executable, "-c", "import nvtx; nvtx.mark('x')", "--api-key", PLANTED],
        ["record", "-o", "r", "--", "env", f"TOKEN={PLANTED}", "true", PLANTED],
        ["model", "vgg_a", "--device", "gtx1080", "--batch", "1..4", "-o", "r"],
    ],
    ids=["record", "record env", "diagnose"],
)
def test_recordings_have_nothing_of_the_environment(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SOME_VARIABLE"):
        monkeypatch.setenv(name, PLANTED)
    assert main(arguments) == 0
    assert list(Path("r").rglob("recording.json"))
    for content in whole(Path("r")):
        assert PLANTED.encode() not in content


def test_nothing_that_is_made_of_a_recording_has_anything_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_SECRET", PLANTED)
    monkeypatch.setenv("SOME_VARIABLE", PLANTED)
    for command in (
        "model vgg_a --device gtx1080 --batch 1..4 -o r",
        f"report r -o {PLANTED}.html",
        "export r --perfetto -o p.json.gz",
        "export r --csv -o csv",
    ):
        assert main(command.split()) == 0
    (tmp_path / f"{PLANTED}.html").rename("report.html")
    made = list(whole(tmp_path))
    assert len(made) > 5
    for content in (*made, gzip.decompress((tmp_path / "p.json.gz").read_bytes())):
        assert PLANTED.encode() not in content


def test_names_that_are_no_text_are_recorded(tmp_path, capfd):
    """A command line is bytes: one that is not UTF-8 used to end in a traceback."""
    assert main(["record", "-o", str(tmp_path / "r"), "--", "true", "a\udcffb"]) == 0
    from curvescope.profiling.recording.store import open_recording

    assert open_recording(tmp_path / "r").meta["argv"] == ["true", "a\udcffb"]


SOURCES = [p for room in ("curvescope", "kernels", "profiling", "analysis") for p in (ROOT / room).rglob("*.py")]


def dotted(function):
    """The name of what is called, e.g. os.system; what has none ends it with an empty one."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def test_nothing_goes_through_a_shell():
    calls = [
        (path, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    assert len(calls) > 1000
    for path, call in calls:
        name = dotted(call.func)
        assert name not in ("os.system", "os.popen", "eval", "exec"), path
        assert name not in ("subprocess.getoutput", "subprocess.getstatusoutput"), path
        assert not any(keyword.arg == "shell" for keyword in call.keywords), f"{path}:{call.lineno}"
        assert name not in ("yaml.load", "torch.load"), f"{path}:{call.lineno}"


UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}


def test_no_file_is_unpickled():
    """Not `pickle.load`, nor an own class of `pickle.Unpickler`, nor `import_module("pickle")`."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            names += [keyword.arg for keyword in node.keywords] if isinstance(node, ast.Call) else []
            for name in names:
                if name is not None and (name.split(".")[0] in UNPICKLING or name == "allow_pickle"):
                    found.append(f"{path}: {name}")
    assert found == []
