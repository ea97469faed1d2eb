"""Described networks are those of torch, and what builders make of them computes what torch
computes.

The largest difference is that of convolutions in another order, in float64 many digits smaller than
in fp32: with batch normalisation of two samples, rounding grows over a hundred layers, so gradients
are compared in float64.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import network_descriptions
from curvescope.analysis.ran_by import framework_of
from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.cli import main
from curvescope.profiling.measure import versions
from curvescope.profiling.measure import visit as visits
from curvescope.profiling.measure.configuration import Configuration, configuration_of
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.visit import visit
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording.store import RecordingWriter, open_recording
from curvescope.profiling.workload import framework_step
from curvescope.profiling.workload.networks import get_network, names
from curvescope.profiling.workload.networks.description import read_description

from ...tables import ask_each
from .torch_networks import (
    difference,
    largest_difference,
    of_small_bert,
    of_torch,
    small_bert,
    weights_of,
    without_dropout,
)

ROOT = Path(__file__).parents[3]
CHILD = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
pytestmark = pytest.mark.filterwarnings("default")  # frameworks warn of each other's versions
SHORT = Protocol("short", (2, 2), 1, (2, 2), 0.0, 1, None)


@pytest.mark.first_rows(3)
@pytest.mark.parametrize("name", names())
def test_a_description_is_that_of_the_torch_network(name):
    """After a change of a network `python -m benchmarks.network_descriptions` renews the file."""
    assert read_description(name) == network_descriptions.describe(get_network(name))


@pytest.mark.first_rows(3)
@pytest.mark.parametrize("name", names())
def test_parameters_have_torchs_names_and_shapes(name):
    import torch

    with torch.device("meta"):
        model = get_network(name).build()
    found = {path: tuple(one.shape) for path, one in model.named_parameters()}
    assert read_description(name).parameters == found


def test_a_module_of_the_users_own_is_refused():
    with pytest.raises(CurvescopeError, match="my:model is a module of PyTorch"):
        read_description("my:model")


def test_a_description_of_text_has_as_many_tokens_as_asked():
    assert read_description("bert_base").input_shape == (128,)
    assert read_description("bert_base", 7).input_shape == (7,)
    with pytest.raises(CurvescopeError, match="BERT takes 1 to 512 tokens, and not 513"):
        read_description("bert_base", 513)


def test_an_operator_that_no_builder_knows_is_refused():
    """A mask given to an attention would be left out."""
    import torch
    from torch.nn import functional

    class Masked(torch.nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    network = dataclasses.replace(small_bert(heads=False), build=Masked)
    with pytest.raises(CurvescopeError, match=r"scaled_dot_product_attention.* no counterpart"):
        network_descriptions.describe(network)


def test_a_framework_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(framework_step, "find_spec", lambda name: None)
    with pytest.raises(BackendMissingError, match=r"pip install 'curvescope\[jax\]'"):
        Configuration("alexnet", runs_in="jax").build()


def test_a_configuration_of_another_framework_comes_back():
    made = Configuration("alexnet", runs_in="jax")
    assert configuration_of(made.entry) == made
    assert made.label == "alexnet_training_jax_fp32"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet50"])
def test_jax_computes_torchs_logits(name):
    jax = pytest.importorskip("jax")
    import torch

    from curvescope.profiling.workload.networks import jax_build

    made = without_dropout(read_description(name))
    _, model, images, _ = of_torch(name)
    with torch.no_grad():
        expected = model.eval()(images).numpy()
    weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})
    shapes = {path: array.shape for path, array in jax_build.initial_parameters(made).items()}
    assert shapes == {path: array.shape for path, array in weights.items()}
    last = images.numpy().transpose(0, 2, 3, 1)
    state = jax_build.initial_state(made)
    with jax.default_matmul_precision("highest"):
        logits, _ = jax_build.forward(made, weights, state, last, trains=False)
    assert difference(logits, expected) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "googlenet", "inception_bn", "resnet50"])
def test_jax_computes_torchs_gradients_and_running_statistics(name):
    jax = pytest.importorskip("jax")
    from curvescope.profiling.workload.networks import jax_build

    made = without_dropout(read_description(name))
    network, model, images, targets = of_torch(name, doubles=True)
    network.loss(model.train()(images), targets).backward()
    with jax.enable_x64(True):
        weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})
        expected = weights_of(made, {n: p.grad for n, p in model.named_parameters()})
        state = jax_build.initial_state(made)
        last = images.numpy().transpose(0, 2, 3, 1)

        def loss(weights):
            logits, after = jax_build.forward(made, weights, state, last, trains=True)
            return jax_build.loss_of(logits, targets.numpy()), after

        gradients, after = jax.jit(jax.grad(loss, has_aux=True))(weights)
    assert largest_difference(gradients, expected) < 1e-5
    buffers = dict(model.named_buffers())
    for path, value in after.items():
        if path != "key":
            assert np.abs(value - buffers[path].numpy()).max() < 1e-6, path


@pytest.mark.parametrize("heads", [True, False])
def test_jax_computes_the_outputs_and_gradients_of_a_torch_bert(heads):
    """Outputs in fp32, gradients in float64, those of the shared word embedding too."""
    jax = pytest.importorskip("jax")
    import torch

    from curvescope.profiling.workload.networks import jax_build

    made = without_dropout(network_descriptions.describe(small_bert(heads=heads)))
    _, model, tokens, _ = of_small_bert(heads=heads)
    with torch.no_grad():
        expected = model(tokens)
    weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})
    shapes = {path: array.shape for path, array in jax_build.initial_parameters(made).items()}
    assert shapes == {path: array.shape for path, array in weights.items()}
    state = jax_build.initial_state(made)
    with jax.default_matmul_precision("highest"):
        outputs, _ = jax_build.forward(made, weights, state, tokens.numpy(), trains=False)
    for output, wanted in zip(outputs, expected, strict=True):
        assert difference(output, wanted) < 1e-5

    network, model, tokens, targets = of_small_bert(heads=heads, doubles=True)
    network.loss(model(tokens), targets or None).backward()
    with jax.enable_x64(True):
        weights = weights_of(made, {n: p.detach() for n, p in model.named_parameters()})

        def loss(weights):
            outputs, _ = jax_build.forward(made, weights, state, tokens.numpy(), trains=True)
            return jax_build.loss_of(outputs, *(target.numpy() for target in targets))

        gradients = jax.jit(jax.grad(loss))(weights)
    parameters = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    expected = weights_of(made, parameters)
    assert largest_difference(gradients, expected) < 1e-5


def test_jax_drops_shares_of_an_attention():
    """With its dropout an attention that trains has other outputs, by another key each time."""
    jax = pytest.importorskip("jax")
    from curvescope.profiling.workload.networks import jax_build

    made = network_descriptions.describe(small_bert(heads=False))
    kept = {"rate": 0.0}
    rows = [dataclasses.replace(r, settings=kept) if r.op == "dropout" else r for r in made.rows]
    made = dataclasses.replace(made, rows=tuple(rows))
    parameters, state = jax_build.initial_parameters(made), jax_build.initial_state(made)
    tokens = jax.numpy.zeros((2, 6), "int32")

    def run(state, *, trains):
        (encoded, _), after = jax_build.forward(made, parameters, state, tokens, trains=trains)
        return encoded, after

    first, after = run(state, trains=True)
    assert difference(first, run(after, trains=True)[0]) > 1e-3
    assert difference(first, run(state, trains=False)[0]) > 1e-3


@ask_each(
    ("mode", "precision", "heads"),
    [("training", "fp32", True), ("forward+backward", "bf16", False), ("forward", "fp32", True)],
)
def test_a_step_of_text_runs_in_jax(mode, precision, heads):
    jax = pytest.importorskip("jax")
    from curvescope.profiling.workload.networks import jax_build

    step = jax_build.make_step(
        network_descriptions.describe(small_bert(heads=heads)), 2, mode, precision
    )
    step()
    result = step()
    if mode == "forward":
        assert [output.shape for output in result] == [(2, 6, 50), (2, 2)]
    else:
        loss = result if mode == "training" else result[0][0]
        assert jax.numpy.isfinite(loss)


def test_a_step_in_jax_is_recorded_with_torchs_layers():
    pytest.importorskip("jax")
    steps = Configuration("alexnet", runs_in="jax").build()
    found = visit(steps, 1, VisitPlan(SHORT))
    assert [*found.frameworks] == ["jax"]
    rows = [row for step in found.profiled for row in step.kernels]
    assert {"conv1", "pool5", "fc8"} <= {row.get("layer") for row in rows}
    assert {"forward", "backward", "optimizer"} <= {row.get("phase") for row in rows}
    assert steps.spec["runs_in"] == "jax"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet50", "small", "small-encoder"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_keras_computes_torchs_logits_and_gradients(backend, name):
    """Gradients are held in float64: in fp32 rounding moves them, by up to a sixth of the largest
    behind batch normalisation of two samples.
    """
    if find_spec("keras") is None or find_spec(backend) is None:  # importing chooses a backend
        pytest.skip(f"needs keras and {backend}")
    command = [sys.executable, "-m", "tests.profiling.frameworks.keras_checks", backend, name]
    ran = subprocess.run(command, cwd=ROOT, env=CHILD, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["logits"] < 1e-5
    assert found["gradients"] < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet50"])
def test_onnx_runtime_computes_torchs_logits(name):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    import torch

    from curvescope.profiling.workload.networks import onnx_build

    _, model, images, _ = of_torch(name)
    session = onnx_build.session_of(model.eval(), images)
    with torch.no_grad():
        expected = model(images).numpy()
    (logits,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert difference(logits, expected) < 1e-5


@pytest.mark.parametrize("heads", [True, False])
def test_onnx_runtime_computes_the_outputs_of_a_torch_bert(heads):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    import torch

    from curvescope.profiling.workload.networks import onnx_build

    _, model, tokens, _ = of_small_bert(heads=heads)
    session = onnx_build.session_of(model, tokens)
    with torch.no_grad():
        expected = model(tokens)
    found = session.run(None, {session.get_inputs()[0].name: tokens.numpy()})
    for output, wanted in zip(found, expected, strict=True):
        assert difference(output, wanted) < 1e-5


@ask_each(
    ("wrong", "message"),
    [({"mode": "training"}, "use --mode forward"), ({"precision": "bf16"}, "run in fp32")],
)
def test_onnx_runtime_infers_in_fp32_alone(wrong, message):
    from curvescope.profiling.workload.networks import onnx_build

    with pytest.raises(CurvescopeError, match=message):
        onnx_build.make_step(read_description("alexnet"), 2, **{"mode": "forward", **wrong})


@ask_each(
    ("given", "says"),
    [
        ("jax,torch", "name one here; `compare` and `sweep` take several"),
        ("tensorflow", "did you mean keras-tensorflow[?] Choose from torch, "),
        ("paddle", "paddle: Choose from torch, "),
    ],
)
def test_a_framework_that_is_none_says_which_are(given, says):
    with pytest.raises(CurvescopeError, match=says):
        framework_step.check_framework(given)


def test_compare_refuses_a_python_that_does_not_exist(tmp_path, capsys):
    """It said that a file operation failed, and to free space."""
    given = f"torch,jax@{tmp_path / 'python'}"
    assert main(["compare", "--framework", given, "alexnet", "-o", str(tmp_path / "run")]) == 2
    assert "Name the Python of an environment" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["torch", "torch,torch"])
def test_compare_refuses_one_framework(given, capsys):
    assert main(["compare", "--framework", given, "alexnet"]) == 2
    assert "two frameworks or more" in capsys.readouterr().err


def test_compare_measures_a_network_in_two_frameworks(tmp_path, monkeypatch):
    """Each version has a configuration of its own; the processes are not started."""
    seen = []
    monkeypatch.setattr(versions, "measure_versions", lambda found, *_, **__: seen.extend(found))
    monkeypatch.setattr(framework_step, "find_spec", lambda name: name)
    with pytest.raises(TypeError):  # nothing was measured
        main(["compare", "--framework", "torch,torch-compile,jax", "alexnet", "-o", str(tmp_path)])
    made = [versions.configuration_of_version(one, None) for one in seen]
    assert [(one.compiled, one.runs_in) for one in made] == [
        (False, None),
        (True, None),
        (False, "jax"),
    ]


@pytest.mark.parametrize(
    ("scope", "layer"),
    [
        ("network_1/conv1_1", "conv1"),
        ("network/conv1/convolution", "conv1"),
        ("fc6", "fc6"),
        ("sgd", "sgd"),
        ("network_1/conv1_6_1/MatMul", "conv1"),  # the sixth further row of a layer, in its call 1
    ],
)
def test_scopes_of_a_framework_are_the_described_layers(scope, layer, monkeypatch):
    monkeypatch.setattr(framework_step, "find_spec", lambda name: name)
    steps = framework_step.FrameworkStep("alexnet", "keras-tensorflow")
    assert steps.layer_of(scope) == layer


@pytest.mark.parametrize(
    ("operator", "scope", "layer"),
    [
        ("_MklNativeFusedConv2D", "network/relu2/Relu", "conv2"),
        ("_FusedMatMul", "network_1/relu6_1/Relu", "fc6"),
        ("_MklNativePadWithFusedConv2D", "network/relu1/Relu", "conv1"),
        ("Relu", "network/relu2/Relu", "relu2"),
        ("_FusedMatMul", "network/fc8/Add", "fc8"),
        ("_FusedMatMul", "network/drop6", "drop6"),
    ],
)
def test_a_product_fused_with_its_relu_is_of_the_products_layer(
    operator, scope, layer, monkeypatch
):
    monkeypatch.setattr(framework_step, "find_spec", lambda name: name)
    steps = framework_step.FrameworkStep("alexnet", "keras-tensorflow")
    assert steps.layer_of(scope, operator) == layer


def test_a_layer_with_a_backward_pass_also_ran_forward(monkeypatch):
    """TensorFlow's scopes name the operator too where it ran backward; rows lack an unknown
    phase.
    """
    scopes = [{}, {"layer": "network/pool1/MaxPool", "phase": "backward"}, {"layer": "data"}]
    kernels = [{"layer": "network/pool1", "op": "MaxPool", **of_kernel} for of_kernel in scopes]
    monkeypatch.setattr(framework_step, "find_spec", lambda name: name)
    monkeypatch.setattr(visits, "record_by_framework", lambda *_: SimpleNamespace(kernels=kernels))
    steps = framework_step.FrameworkStep("alexnet", "keras-tensorflow")
    visits.profile_by_framework(steps, None, 1)
    found = [(kernel["layer"], kernel.get("phase")) for kernel in kernels]
    assert found == [("pool1", "forward"), ("pool1", "backward"), ("data", None)]


def test_a_product_fused_with_a_sum_is_the_later_one():
    before = framework_step.products_before(read_description("resnet50").rows)
    assert before["res2a.relu"] == "res2a.residual.res2a_branch2c"
    assert before["conv1_relu"] == "conv1"
    assert "pool1" not in before


def test_every_framework_says_under_which_conditions_it_runs():
    assert set(framework_step.CONDITIONS) == set(framework_step.FRAMEWORKS)


@pytest.mark.parametrize(
    ("runs_in", "label"),
    [("jax", "jax 0.10"), ("keras-jax", "keras on jax 0.10"), (None, "jax 0.10")],
)
def test_a_table_names_keras_beside_what_it_runs_on(runs_in, label, tmp_path):
    meta = {"recording_type": "sweep", "runs_in": runs_in, "frameworks": {"jax": "0.10"}}
    with RecordingWriter(tmp_path / "r", meta):
        pass
    assert framework_of(open_recording(tmp_path / "r")) == label
