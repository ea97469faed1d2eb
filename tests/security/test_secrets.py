"""Secrets of the environment and of command lines do not get into recordings; no command goes
through a shell.
"""

import ast
import gzip
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from curvescope.base.masking import mask_text, without_secrets
from curvescope.cli import main
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sweep import describe_sweep
from curvescope.profiling.recording import hidden_commands
from curvescope.profiling.recording.hidden_commands import VALUES, restore_commands
from curvescope.profiling.recording.named_code import check_recorded_code
from curvescope.profiling.workload.program import Program

from ..shared import ROOT
from ..tables import ask_each

PLANTED = "pl4nted-s3cret-7f1c"


@ask_each(
    ("command", "kept"),
    [
        ("train.py --lr 0.1 --batch=8 -n8 -v", "train.py --lr 0.1 --batch=8 -n8 -v"),
        ("python -m torch.distributed.run --nproc-per-node 2 a/train.py --data /x", "python -m torch.distributed.run "
         "--nproc-per-node 2 a/train.py --data ***"),
        ("torchrun -m pkg.train --name run-7 resnet50", "torchrun -m pkg.train --name *** resnet50"),
        ("env API_KEY=abc STEPS=3 python train.py", "env API_KEY=*** STEPS=3 python train.py"),
        ("git -m mine", "git -m ***"),
        ("diagnose vgg_a --batch 1..32 --mode forward -o runs/x", "diagnose vgg_a --batch 1..32 "
                                                                  "--mode forward -o ***"),
        ("t --max-tokens 128 --tokenizer=bert --token 128", "t --max-tokens 128 --tokenizer=*** "
                                                            "--token ***"),
        ("t --device cuda:1 --dtype=bfloat16 --pin-memory true pin_memory=True --optimizer adamw "
         "--model mine",
         "t --device cuda:1 --dtype=bfloat16 --pin-memory true pin_memory=True --optimizer adamw "
         "--model ***"),
        ("torchrun --rdzv-backend c10d --rdzv-endpoint=localhost:29500 t.py --init-method env://",
         "torchrun --rdzv-backend c10d --rdzv-endpoint=localhost:29500 t.py --init-method env://"),
        ("t --rdzv-endpoint gpu7:29500 -p adam --password adam --token=auto --pin 1234 auto",
         "t --rdzv-endpoint *** -p *** --password *** --token=*** --pin *** ***"),
        (f"{Path.home()}/bin/python {Path.home()}/x/t.py", "~/bin/python ~/x/t.py"),
        ("/home/bobby/bin/python /Users/bobby/t.py", "/home/***/bin/python /Users/***/t.py"),
    ],
)  # fmt: skip
def test_of_a_command_line_the_program_its_script_options_and_numbers_are_kept(command, kept):
    assert without_secrets(command.split(), {}) == kept.split()


RANDOM = "Q7xK2mV9pL4wT8"
# Each of 66 shapes with the text in it that nobody else may read.
SHAPES = [
    (["train.py", "--password", "-hunter2"], "hunter2"),
    (["t", "--auth", "bob:hunter2"], "hunter2"),
    (["t", "--authtoken", "Zx9Yw8Vu7"], "Zx9Yw8Vu7"),
    (["t", "--hftoken=hf_abcdEFGHijklMNOP"], "abcdEFGHijklMNOP"),
    (["t", "--pass", "hunter2"], "hunter2"),
    (["t", "--pwd=hunter2"], "hunter2"),
    (["mysql", "-phunter2"], "hunter2"),
    (["t", "--private-key", "/keys/hunter2.pem"], "hunter2"),
    (["t", "--wandb-key", "a1b2c3d4e5f6a7b8"], "a1b2c3d4e5f6a7b8"),
    (["t", "--key", "sk-proj-Abc123XYZ7890qwe"], "Abc123XYZ7890qwe"),
    (["t", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"], "16C7e42F292c6912E7710c838347Ae178B4a"),
    (["t", "hf_abcdEFGHijklMNOPqrst"], "abcdEFGHijklMNOPqrst"),
    (["t", "AKIAIOSFODNN7EXAMPLE"], "IOSFODNN7EXAMPLE"),
    (
        ["t", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"],
        "dozjgNryP4J3jVmNHl0w5N",
    ),
    (["curl", "-H", "Authorization: Bearer hunter2"], "hunter2"),
    (["t", '{"password": "hunter2", "lr": 0.1}'], "hunter2"),
    (["t", "host=db user=bob password=hunter2"], "hunter2"),
    (["sh", "-c", "A=1 TOKEN=hunter2 python train.py"], "hunter2"),
    (["t", "https://b.s3.amazonaws.com/x?X-Amz-Signature=abcdef0123456789"], "abcdef0123456789"),
    (["t", "https://a.blob.core.windows.net/x?sv=2024&sig=aBc%2Fdef123"], "aBc%2Fdef123"),
    (["curl", "-b", "session=hunter2"], "hunter2"),
    (["t", "machine h login bob password hunter2"], "hunter2"),
    (["t", "--api_key=hunter2"], "hunter2"),
    (["t", "--client-secret", "hunter2"], "hunter2"),
    (["t", "postgres://bob:hunter2@db/x"], "hunter2"),
    (["env", "WANDB_API_KEY=hunter2", "train.py"], "hunter2"),
    (["t", "--config", "password=hunter2"], "hunter2"),
    (["curl", "-u", "bob:hunter2"], "hunter2"),
    (["t", "--header=X-Token: hunter2"], "hunter2"),
    (["t", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0"], "MIIEvQIBADANBgkqhkiG9w0"),
    (["t", "xoxb-123456789-abcdefGHIJ"], "abcdefGHIJ"),
    (["t", "--passphrase", "hunter2"], "hunter2"),
    (["t", "--credentials", "hunter2"], "hunter2"),
    (["t", "--slack", "https://hooks.slack.com/services/T0/B0/hunter2"], "hunter2"),
    (["t", "hunter2"], "hunter2"),
    (["/home/bobby/bin/t", "/home/bobby/data"], "bobby"),
    (["train.py", "--hub", f"hf_{RANDOM}"], RANDOM),
    (["t", "-k", RANDOM], RANDOM),
    (["t", "-H", f"X-Api: {RANDOM}"], RANDOM),
    (["t", f"--url=https://x.y/?token={RANDOM}"], RANDOM),
    (["t", f"--url=https://x.y/{RANDOM}/z"], RANDOM),
    (["t", "--lr", "0.1", RANDOM], RANDOM),
    (["t", f"DB={RANDOM}"], RANDOM),
    (["t", f"--opt=a=b,password={RANDOM}"], RANDOM),
    (["t", "--license", f"sk-ant-{RANDOM}"], RANDOM),
    (["bash", "-c", f"export T={RANDOM}; python t.py"], RANDOM),
    (["t", "--sas", f"?sv=1&sig={RANDOM}"], RANDOM),
    (["t", "--dsn", f"mongodb+srv://u:{RANDOM}@h/d"], RANDOM),
    (["t", "--seed", "4111111111111111"], "4111111111111111"),
    (["t", "--pin=123456"], "123456"),
    (["t", "--otp", "123456"], "123456"),
    (["t", "--code=987654321012"], "987654321012"),
    (["t", "--user", "alice@corp.com"], "alice"),
    (["t", "--host=secret-host.corp"], "secret-host"),
    (["secret-host.corp/run.sh"], "secret-host"),
    (["t", f"{RANDOM}.py"], RANDOM),
    (["t", "/home/alice/x.py"], "alice"),
    (["t", "/data/alice/x.py"], "alice"),
    (["t", f"--a{RANDOM}"], RANDOM),
    (["t", f"--{RANDOM}"], RANDOM),
    (["python", "-m", RANDOM.replace("7", "a")], RANDOM.replace("7", "a")),
    (["t", f"-x{RANDOM}"], RANDOM),
    (["t", "--mode", "none", "--master", RANDOM], RANDOM),
    (["t", "--api.key", RANDOM], RANDOM),
    (["t", "--hf.token", "auto"], "auto"),
    (["t", "--unlock", "1234567890"], "1234567890"),
]


@ask_each(("command", "secret"), SHAPES)
def test_no_shape_of_a_secret_is_kept(command, secret):
    assert len(SHAPES) == 66
    assert secret not in str(without_secrets(command, {}))


WAYS_IN_TEXT = {
    "message": lambda command: f"ConnectionError: {' '.join(command)} was refused",
    "quoted": lambda command: f"Command '{' '.join(command)}' ended with code 1",
    "source line": lambda command: f"subprocess.run({list(command)!r}, check=True)",
    "comment": lambda command: f"step()  # {' '.join(command)}",
}


@ask_each("write", WAYS_IN_TEXT.values())
@ask_each(("command", "secret"), SHAPES)
def test_messages_and_source_lines_go_through_the_same_door(write, command, secret):
    assert secret not in mask_text(write(command), {})


@ask_each(("command", "secret"), SHAPES)
def test_a_recorded_command_of_a_program_has_none_and_is_whole_for_its_user(
    command, secret, tmp_path, monkeypatch
):
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path))
    program = Program((*command, "{batch}"), workdir="/home/bobby/out")
    recorded = describe_sweep(program.entry | {"network": program.name}, (1,), PROTOCOLS["quick"])
    assert secret not in json.dumps(recorded)
    assert "bobby" not in json.dumps(recorded)
    hidden_commands._kept_here.clear()  # as in another process
    whole = restore_commands("r", recorded, recorded[VALUES])
    assert whole["program"] == [*command, "{batch}"]
    assert whole["workdir"] == "/home/bobby/out"


@ask_each(
    "message",
    [
        "RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu! "
        "(model.py, line 41)",
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB.",
        "mat1 and mat2 shapes cannot be multiplied (32x512 and 1024x10)",
        "KeyError: 'encoder.layers.0.self_attn.in_proj_weight'",
        "the forward pass of conv2d_7 took 3.5 ms — more than fp16→fp32",
        "loss = F.cross_entropy(model(x), y, reduction='mean')",
        "DataLoader(data, pin_memory=True), pad_token_id=3, key_padding_mask=None, "
        "use_auth_token=True, token=None",
        "see https://pytorch.org/docs/stable/notes/cuda.html.",
        "(https://docs.nvidia.com/cuda/), tcp://127.0.0.1:29500 and env:// failed",
        "key = self.key(x); query, key, value = qkv.chunk(3, dim=-1)",
        "if key == 'step' and self.key.layer is not None: alpha=-lr",
        "unrecognized option --batch-sizes; use --batch-size to set it, e.g. --batch-size 64",
        "File /usr/lib/python3/dist-packages/torch/nn/modules/conv.py:41, in forward",
        "took 12:30:45 on cuda:0, 85899345920 bytes, x[0]: 32x3x224x224, 1e-5, 3.5 ms/step",
        "libcudart.so.12: cannot open shared object file; CUDA 12.4, sm_90, H100, Conv2d, fc1",
        "the backward pass of linear1 failed: key not found, tokens were missing",
    ],
)
def test_a_message_of_a_library_is_kept(message):
    assert mask_text(message, {}) == message


@ask_each(
    ("message", "kept"),
    [
        ("https://bob:hunter2@pytorch.org/docs", "https://***"),
        ("https://pytorch.org@evil.example/hunter", "https://***"),
        ("https://evilpytorch.org/hunter https://pytorch.org.evil.example/", "https://*** https://***"),
        ("https://pytorch.org/ghp_abcdefghijklmnop", "https://pytorch.org/***"),
        ("https://pytorch.org/0a1b2c3d4e5f", "https://pytorch.org/***"),
        ("https://pytorch.org/docs?token=hunter", "https://pytorch.org/docs?token=***"),
        ("http://localhost:8000/hunter?key=hunter", "http://localhost:8000/***?key=***"),
        ("tcp://gpu7.cluster.example:29500", "tcp://***"),
        ("pin=1234, token=Truest, token_id=3", "pin=***, token=***, token_id=***"),
        ("pin_memory_token=hunter", "pin_memory_token=***"),
        ("connect to db.corp.internal:5432 or gpu7:29500 failed", "connect to *** or *** failed"),
        ("10.1.2.3:8080, fe80::1ff:fe23:4567:890a and alice@corp.com", "***, *** and ***"),
        ('API_KEY = "abcdefgh"; api_key = "a b c"', 'API_KEY = "***"; api_key = "***"'),
        ('os.environ["HF_TOKEN"] = "abcdefgh"', 'os.environ["HF_TOKEN"] = "***"'),
        ('DB_PASSWORD = "abcdefgh" {"api_key": "abcdefgh"}', 'DB_PASSWORD = "***" {"api_key": "***"}'),
        ("/data/alice/x.py:41 and /mnt/alice/p", "/data/***/x.py:41 and /mnt/***/***"),
        ("C:\\Users\\alice\\x.py", "C:\\Users\\***\\x.py"),
    ],
)  # fmt: skip
def test_only_pages_that_are_public_and_names_that_are_no_secret_are_kept(message, kept):
    assert mask_text(message, {}) == kept


def test_values_of_the_environment_are_hidden_wherever_they_stand():
    environment = {"MY_ACCESS_KEY": PLANTED, "DB_PASSWORD": "abc", "HOME": "train.py"}
    assert without_secrets([f"{PLANTED}/t.py"], environment) == ["***/t.py"]
    assert mask_text(f"no file {PLANTED}", environment) == "no file ***"
    assert mask_text("abc", environment) == "abc"  # too short to be looked for


def test_the_folder_that_the_shell_is_in_is_no_password():
    environment = {"PWD": "/srv/code", "OLDPWD": "/srv/app", "DB_PWD": PLANTED}
    command = ["/srv/code/bin/python", "/srv/app/train.py", f"{PLANTED}/t.py"]
    assert without_secrets(command, environment) == [*command[:2], "***/t.py"]


def whole(folder):
    """Every byte below a folder, packed or not: Parquet's pages are read through the tables."""
    import pyarrow.parquet as pq

    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path).encode() + path.read_bytes()
            if path.suffix == ".parquet":
                yield (
                    str(pq.read_table(path).to_pylist()).encode()
                    + str(pq.read_schema(path)).encode()
                )


STEP = f"""
TOKEN = "hf_abcdEFGHijklMNOPqrst"

def make_step(batch):
    if batch == 4:  # the largest, which is measured first
        raise ConnectionError("https://bob:S3cr3tPw@host/x refused the key S3cr3tPw of {PLANTED}")
    import torch
    weights = torch.ones(256, 256)
    def step():
        weights @ weights * len("{PLANTED} S3cr3tPw")
    return step
"""
QUICK = ["--quick", "--time-limit", "0.5"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        [
            "record",
            "-o",
            "r",
            "--",
            sys.executable,
            "-c",
            "import nvtx; nvtx.mark('x')",
            "--api-key",
            PLANTED,
        ],
        ["record", "-o", "r", "--", "env", f"TOKEN={PLANTED}", "true", PLANTED],
        ["diagnose", "vgg_a", "--card", "gtx1080", "--batch", "1..4", "-o", "r"],
        pytest.param(
            [
                "diagnose",
                "--step",
                "HOME/step.py:make_step",
                *QUICK,
                "--batch",
                "1,2,4",
                "--experiments",
                "0",
                "-o",
                "r",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["sweep", "--step", "HOME/step.py:make_step", *QUICK, "--batch", "2,4", "-o", "r"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["record", "record env", "diagnose --card", "diagnose", "sweep"],
)
def test_recordings_have_nothing_of_the_environment(tmp_path, monkeypatch, arguments):
    home = tmp_path / "home" / "bobby"
    home.mkdir(parents=True)
    (home / "step.py").write_text(STEP)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(home))
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SOME_VARIABLE"):
        monkeypatch.setenv(name, PLANTED)
    words = [argument.replace("HOME", str(home)) for argument in arguments]
    if (
        "--step" in arguments
    ):  # a program of its own: the server of processes here may have begun with another home
        subprocess.run([sys.executable, "-m", "curvescope.cli", *words], check=True)
    else:
        assert main(words) == 0
    assert list(Path("r").rglob("recording.json"))
    for content in whole(Path("r")):
        for secret in (PLANTED, "S3cr3tPw", "bobby"):
            assert secret.encode() not in content
    if "--step" in arguments:
        (path,) = Path("r").rglob("recording.json")
        meta = json.loads(path.read_bytes())
        assert meta["step"] == "~/step.py:make_step"
        assert "ConnectionError: https://***" in meta["unmeasured"][0]["detail"]
        check_recorded_code(path, meta, False)


def test_nothing_that_is_made_of_a_recording_has_anything_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_SECRET", PLANTED)
    monkeypatch.setenv("SOME_VARIABLE", PLANTED)
    for command in (
        "diagnose vgg_a --card gtx1080 --batch 1..4 -o r",
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

    assert open_recording(tmp_path / "r").meta["argv"] == ["true", "***"]


SOURCES = [
    p
    for room in ("curvescope", "kernels", "profiling", "analysis")
    for p in (ROOT / room).rglob("*.py")
]


@cache
def syntax_of_sources():
    """Every file with the nodes of its syntax."""
    return [(path, list(ast.walk(ast.parse(path.read_text())))) for path in SOURCES]


def dotted(function):
    """The name of what is called, e.g. os.system; what has none ends it with an empty one."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


# Runs the script that the measured command names, with other constants, in a process of its own.
RUNS_THE_PROGRAM = ROOT / "profiling" / "collect" / "startup" / "assigned.py"


@pytest.mark.slow
def test_nothing_goes_through_a_shell():
    calls = [
        (path, node)
        for path, nodes in syntax_of_sources()
        for node in nodes
        if isinstance(node, ast.Call)
    ]
    assert len(calls) > 1000
    for path, call in calls:
        name = dotted(call.func)
        assert name not in ("os.system", "os.popen", "eval"), path
        assert name != "exec" or path == RUNS_THE_PROGRAM
        assert name not in ("subprocess.getoutput", "subprocess.getstatusoutput"), path
        assert not any(keyword.arg == "shell" for keyword in call.keywords), f"{path}:{call.lineno}"
        assert name not in ("yaml.load", "torch.load"), f"{path}:{call.lineno}"


UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}


@pytest.mark.slow
def test_no_file_is_unpickled():
    """Not `pickle.load`, nor an own class of `pickle.Unpickler`, nor `import_module("pickle")`."""
    found = []
    for path, nodes in syntax_of_sources():
        for node in nodes:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += (
                [node.value]
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                else []
            )
            names += (
                [keyword.arg for keyword in node.keywords] if isinstance(node, ast.Call) else []
            )
            for name in names:
                if name is not None and (
                    name.split(".")[0] in UNPICKLING or name == "allow_pickle"
                ):
                    found.append(f"{path}: {name}")
    assert found == []
