"""Strangers' training scripts through `diagnose --step`, `sweep --step` and
`curvescope.diagnose`.
"""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import curvescope
from curvescope.analysis.render.notes import ONE_PROCESS, TWO_PROCESSES
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.protocol import PROTOCOLS, Protocol
from curvescope.profiling.workload.own_step import refuse_while_importing

from ..tables import ask_each

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "step" / "train.py"
LANGUAGE_MODEL = EXAMPLE.with_name("language_model.py")
SHORT = ("--quick", "--device", "cpu")
UNTESTED = ("--experiments", "0")


@pytest.fixture(autouse=True, scope="module")
def _one_step_in_one_round():
    """What is asked is whether a stranger's step runs and what is read of it, not how long it
    takes.
    """
    quick = replace(
        PROTOCOLS["quick"],
        rounds=(1, 1),
        steps_per_visit=(1, 1),
        profiled_steps=1,
        time_limit_s=600.0,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, "quick", quick)
        yield


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(EXAMPLE, folder / "train.py")
    shutil.copy(HERE / "hugging_face_style.py", folder / "tiny_lm.py")
    return folder


def test_the_language_model_learns_and_decodes_as_it_reads_whole_texts():
    spec = importlib.util.spec_from_file_location("language_model", LANGUAGE_MODEL)
    language_model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(language_model)
    torch.manual_seed(0)
    step = language_model.train(2)
    losses = [float(step().detach()) for _ in range(8)]
    assert losses[-1] < losses[0]
    decoding = language_model.decode(3)
    assert decoding().shape == (3, 1)
    model = language_model.Model()  # in fp32
    tokens = torch.randint(language_model.WORDS, (2, 5))
    shape = 2, language_model.WIDTH // language_model.HEAD_WIDTH, language_model.TOKENS
    caches = [
        [torch.zeros(*shape, language_model.HEAD_WIDTH) for _ in range(2)]
        for _ in range(language_model.LAYERS)
    ]
    with torch.no_grad():
        read = [model(tokens[:, [at]], caches, torch.tensor([at])) for at in range(5)]
        torch.testing.assert_close(torch.cat(read, 1), model(tokens), rtol=1e-4, atol=1e-5)


def layers_by_phase(recording):
    kernels = recording.frame("kernels")
    return {phase: set(rows["layer"].dropna()) for phase, rows in kernels.groupby("phase")}


PRINTS = """
import torch

print("imported")


def make_step(batch):
    layer = torch.nn.Linear(8, 8)

    def step():
        print("step")
        return layer(torch.ones(batch, 8))

    step.module = layer
    return step
"""


@pytest.mark.slow
def test_what_a_step_prints_leaves_the_document_whole_and_one_layer_is_known(command, tmp_path):
    (tmp_path / "prints.py").write_text(PRINTS)
    how = ("--batch", "1,2", *SHORT, *UNTESTED, "--json")
    done = command(
        "diagnose", "--step", "prints.py:make_step", *how, "-o", "run", cwd=tmp_path, code=0
    )
    document = json.loads(done.stdout)
    assert set(document["notes"]) <= {ONE_PROCESS, TWO_PROCESSES}
    assert "step" in done.stderr
    kernels = curvescope.open_recording(tmp_path / "run").frame("kernels")
    assert set(kernels["layer"].dropna()) == {"Linear"}


@pytest.mark.slow
def test_a_script_with_loader_autocast_adamw_and_clipping_needs_only_make_step(command, workplace):
    how = ("--batch", "4,8", *SHORT, *UNTESTED)
    done = command(
        "diagnose", "--step", "train:make_step", *how, "-o", "loader", cwd=workplace, code=0
    )
    assert "train:make_step own step" in done.stdout
    recording = curvescope.open_recording(workplace / "loader")
    assert recording.meta["layer_classes"]["4"] == "Conv2d"
    layers = layers_by_phase(recording)
    assert {"0", "4", "9"} <= layers["forward"]
    assert {"0", "4", "9"} <= layers["backward"]
    ops = recording.frame("kernels").query("phase == 'optimizer'")
    assert len(ops) > 0


@pytest.mark.slow
def test_a_module_in_the_style_of_hugging_face_needs_no_package_of_theirs(command, workplace):
    how = ("--batch", "1,2", *SHORT, *UNTESTED)
    command("diagnose", "--step", "tiny_lm.py:make_step", *how, "-o", "lm", cwd=workplace, code=0)
    recording = curvescope.open_recording(workplace / "lm")
    inside = {"embed_tokens", "layers.0.norm", "layers.0.mlp.0", "layers.1.mlp.2", "lm_head"}
    layers = layers_by_phase(recording)
    assert inside <= layers["forward"]
    assert inside - {"embed_tokens"} <= layers["backward"]
    assert recording.meta["layer_classes"]["layers.1"] == "Block"


@pytest.mark.slow
def test_isolated_processes_measure_an_own_step_too(command, workplace):
    arguments = ("--step", "tiny_lm:make_step", "--axis", "tokens=8,16", "--axis", "batch=2")
    command("sweep", *arguments, *SHORT, "-o", "isolated", cwd=workplace, code=0)
    recording = curvescope.open_recording(workplace / "isolated" / "tiny_lm-make_step_own_batch2")
    assert set(recording.frame("steps")["batch"]) == {8, 16}
    assert recording.meta["layer_classes"]["lm_head"] == "Linear"


def test_the_step_command_runs_an_own_step_in_ranges(command, workplace):
    done = command(
        "step", "--step", "tiny_lm:make_step", "--batch", "2", "--steps", "2", cwd=workplace, code=0
    )
    assert done.stdout.count("including ranges") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--step", "tiny_lm"), "write package.module:make_step or path/to/file.py:make_step"),
        (("--step", "nowhere.py:make_step"), "no file nowhere.py"),
        (("--step", "tiny_lm:missing"), "has no function missing"),
        (
            ("--step", "tiny_lm:make_step", "alexnet"),
            "brings its own model, data and optimizer: omit network",
        ),
        (
            ("--step", "tiny_lm:make_step", "--framework", "jax", "--mode", "forward"),
            "omit --mode, --framework",
        ),
        (
            ("--step", "tiny_lm:TinyConfig"),
            "TinyConfig(batch=1) returned a TinyConfig: return a function",
        ),
        (
            ("--step", "tiny_lm:make_step", "--axis", "tokens"),
            "write a name and values, e.g. tokens=128..4096",
        ),
        (("--step", "tiny_lm:make_step", "--axis", "tokens=0"), "write sizes of at least 1"),
        (
            ("--step", "tiny_lm:make_step", "--axis", "x=1,2", "--axis", "x=3"),
            "give the values of x once",
        ),
        (
            ("--step", "tiny_lm:make_step", "--axis", "tokens=8,16", "--batch", "1,2"),
            "The axes tokens, batch have several values: a curve has one such axis",
        ),
        (
            ("--step", "tiny_lm:make_step", "--axis", "width=1,2", "-o", "w"),
            "unexpected keyword argument 'width'",
        ),
        (("alexnet", "--axis", "tokens=8,16"), "the axes of alexnet are batch; others need a step"),
    ],
)
def test_bad_input_says_what_to_do(command, workplace, arguments, message):
    done = command("diagnose", *arguments, *SHORT, cwd=workplace, code=2)
    assert message in done.stderr


@pytest.mark.slow
def test_diagnose_in_python_returns_the_diagnosis_that_explain_gives(tmp_path, capsys):
    protocol = Protocol("short", (3, 3), 1, (2, 2), 0.0, 1, None)

    def make_step(batch):
        return lambda: sum(range(1000 * batch))

    found = curvescope.diagnose(
        make_step, (1, 2, 4), protocol=protocol, output=tmp_path / "r", name="sums"
    )
    assert found.curve.conditions == (1, 2, 4)
    again = curvescope.explain(curvescope.open_recording(tmp_path / "r"))
    assert again.findings == found.findings
    assert "Measuring sums (own step), batch 1, 2, 4" in capsys.readouterr().err


@ask_each("batches", [(), (0, 1), (1.5,), (True,)])
def test_diagnose_in_python_refuses_what_is_no_batch_size(batches):
    with pytest.raises(CurvescopeError, match="give whole numbers, at least 1"):
        curvescope.diagnose(lambda batch: print, batches)


def test_a_script_that_measures_when_imported_is_told_so(command, workplace):
    (workplace / "unguarded.py").write_text(
        "import curvescope\ndef make_step(batch):\n    return lambda: "
        "None\ncurvescope.diagnose(make_step, (1, 2))\n"
    )
    done = command("diagnose", "--step", "unguarded:make_step", *SHORT, cwd=workplace, code=2)
    assert "put the call under `if __name__" in done.stderr
    refuse_while_importing()
