"""Steps of the real frameworks, each skipped where it is not installed; CONTRIBUTING.md says how to
install one.
"""

import sys

import numpy as np
import pytest

from curvescope.analysis.ran_by import framework_of
from curvescope.profiling import frameworks
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.command import Command
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visit import visit
from curvescope.profiling.measure.visits import VisitPlan
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.own_step import OwnStep
from curvescope.profiling.workload.program import Program

SHORT = Protocol("short", (2, 2), 1, (2, 2), 0.0, 1, None)
pytestmark = pytest.mark.filterwarnings("default")  # frameworks warn of each other's versions


@pytest.fixture(autouse=True)
def alone(request, monkeypatch):
    """Hide what another test of this process has begun: a process of steps has one framework."""
    other = "jax" if "tensorflow" in request.node.name else "tensorflow"
    monkeypatch.delitem(sys.modules, other, raising=False)
    bridge = sys.modules.get("jax._src.xla_bridge")
    if other == "jax" and bridge is not None:  # what imports JAX again has begun no backend
        monkeypatch.setattr(bridge, "_backends", {})


def jax_step(batch):
    """A training step that waits for nothing."""
    import jax
    import jax.numpy as jnp

    def loss(weights, inputs):
        return jnp.mean(jax.nn.relu(inputs @ weights) ** 2)

    @jax.jit
    def train(weights, inputs):
        value, gradient = jax.value_and_grad(loss)(weights, inputs)
        return weights - 1e-3 * gradient, value

    state, inputs = [jnp.ones((256, 256))], jnp.ones((16 * batch, 256))

    def step():
        state[0], value = train(state[0], inputs)
        return value

    return step


def dropped_jax_step(batch):
    """A step whose results are gone when it returns: nothing tells when they are there."""
    import jax
    import jax.numpy as jnp

    inputs, weights = jnp.ones((64 * batch, 1024)), jnp.ones((1024, 2048))
    product = jax.jit(lambda inputs, weights: jnp.tanh(inputs @ weights) @ weights.T)

    def step():
        product(inputs, weights)

    return step


def too_large_jax_step(batch):
    import jax.numpy as jnp

    return lambda: jnp.ones((batch << 40,)).sum()


def tensorflow_step(batch):
    import tensorflow as tf

    weights, inputs = tf.Variable(tf.ones((64, 64))), tf.ones((batch, 64))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(inputs, weights) ** 2)
        weights.assign_sub(1e-3 * tape.gradient(loss, weights))
        return loss

    return step


def test_a_jax_step_is_done_when_its_time_ends():
    jax = pytest.importorskip("jax")
    workload = OwnStep(jax_step, name="mine")
    workload.try_step(8)
    assert frameworks.framework_versions() == {"jax": jax.__version__}
    for _ in range(5):
        workload.time_step()
        assert all(array.is_ready() for array in jax.live_arrays() if not array.is_deleted())


def test_a_jax_step_is_recorded_as_jaxs(tmp_path):
    jax = pytest.importorskip("jax")
    run_sweep(Here(OwnStep(jax_step, name="mine")), (2, 4), SHORT, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    assert framework_of(recording) == f"jax {jax.__version__}"
    assert recording.meta["framework_threads"]["jax"] >= 1
    assert all(seconds > 0 for seconds in recording.meta["setup_s"].values())


def test_a_jax_step_whose_results_are_gone_leaves_no_work(monkeypatch):
    """It was refused where it left much, and timed without its work where it left little."""
    pytest.importorskip("jax")
    for name in ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    OwnStep(dropped_jax_step, name="mine").try_step(64)


def test_jax_without_memory_is_a_result():
    pytest.importorskip("jax")
    assert (
        visit(OwnStep(too_large_jax_step, name="mine"), 8, VisitPlan(SHORT)).why == "out of memory"
    )


def test_a_tensorflow_step_is_recorded_as_tensorflows(tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    run_sweep(Here(OwnStep(tensorflow_step, name="mine")), (2, 4), SHORT, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    assert framework_of(recording) == f"tensorflow {tensorflow.__version__}"
    assert recording.meta["framework_threads"]["tensorflow"] >= 1


def onnx_product():
    """A file of ONNX with a product of constant weights."""
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 64])],
        [weights],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opset).SerializeToString()


def onnx_step(batch):
    """That product, inferred by ONNX Runtime."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(onnx_product(), providers=providers)
    inputs = np.ones((batch, 64), np.float32)
    return lambda: session.run(None, {"x": inputs})


def test_a_step_of_onnx_runtime_is_recorded_as_its(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    run_sweep(Here(OwnStep(onnx_step, name="mine")), (2, 4), SHORT, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    assert framework_of(recording) == f"onnxruntime {onnxruntime.__version__}"
    assert recording.meta["framework_threads"] == {"onnxruntime": None}


JAX_PROGRAM = """
import sys
import jax, jax.numpy as jnp

def loss(weights, inputs):
    with jax.named_scope("layer"):
        return jnp.mean(jax.nn.relu(inputs @ weights) ** 2)

@jax.jit
def update(weights, inputs):
    return weights - 1e-3 * jax.grad(loss)(weights, inputs)

weights, inputs = jnp.ones((64, 64)), jnp.ones((int(sys.argv[1]), 64))
while True:
    weights = update(weights, inputs)
"""


JAX_AGENT = """
import sys
import jax, jax.numpy as jnp

def values(weights, inputs):
    return jnp.tanh(inputs @ weights) @ weights.T

act = jax.jit(values)

@jax.jit
def update(weights, inputs):
    loss = lambda weights: jnp.mean(values(weights, inputs) ** 2)
    return weights - 1e-3 * jax.value_and_grad(loss)(weights)[1]

weights, seen, batch = jnp.ones((4, 64)), jnp.ones((1, 4)), jnp.ones((int(sys.argv[1]), 4))
for step in range(10**6):
    act(weights, seen)
    if step >= int(sys.argv[2]) and step % 10 == 0:
        weights = update(weights, batch)
"""


def agent_of(tmp_path, acts, **how):
    (tmp_path / "train.py").write_text(JAX_AGENT)
    command = sys.executable, str(tmp_path / "train.py"), "{batch}", acts
    return Command(Program(command, **how), Axis())


@pytest.mark.parametrize("how", [{}, {"step_function": "update"}])
def test_a_jax_program_that_acts_before_it_learns_has_its_update_as_step(tmp_path, how):
    pytest.importorskip("jax")
    steps = agent_of(tmp_path, "300", **how)
    for batch in (8, 16):
        steps.visit(batch, VisitPlan(SHORT, profile=False))
    assert steps.source == "calls of a function of JAX or TensorFlow (update)"
    assert "same_shapes" not in steps.closing_entry()


def test_a_jax_program_that_only_acts_says_that_its_sizes_do_not_matter(monkeypatch, tmp_path):
    pytest.importorskip("jax")
    monkeypatch.setattr("curvescope.profiling.measure.sites.command._GRADIENT_S", 0.5)
    steps = agent_of(tmp_path, str(10**6))
    for batch in (8, 16):
        steps.visit(batch, VisitPlan(SHORT, profile=False))
    assert steps.source == "calls of a function of JAX or TensorFlow (values)"
    entry = steps.closing_entry()
    assert (entry["same_shapes"], entry["may_be_steps"]) == (True, ["update"])


ONNX_PROGRAM = """
import sys
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])
while True:
    session.run(None, {"x": np.ones((int(sys.argv[1]), 64), np.float32)})
"""


def test_a_program_of_onnx_runtime_has_the_runs_of_its_session_as_steps(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    (tmp_path / "model.onnx").write_bytes(onnx_product())
    (tmp_path / "infer.py").write_text(ONNX_PROGRAM)
    command = sys.executable, str(tmp_path / "infer.py"), "{batch}", str(tmp_path / "model.onnx")
    steps = Command(Program(command), Axis())
    found = steps.run(8, VisitPlan(SHORT))
    assert steps.source == "calls of a model (InferenceSession)"
    assert list(found.frameworks) == ["onnxruntime"]


def test_a_jax_program_is_measured_as_it_is_with_its_layers(tmp_path):
    pytest.importorskip("jax")
    (tmp_path / "train.py").write_text(JAX_PROGRAM)
    steps = Command(Program((sys.executable, str(tmp_path / "train.py"), "{batch}")), Axis())
    found = steps.run(64, VisitPlan(Protocol("short", (2, 2), 1, (2, 2), 0.0, 3, None)))
    assert steps.source == "calls of a function of JAX or TensorFlow (update)"
    assert list(found.frameworks) == ["jax"]
    assert len(found.profiled) >= 1
    assert "layer" in {row.get("layer") for step in found.profiled for row in step.kernels}
