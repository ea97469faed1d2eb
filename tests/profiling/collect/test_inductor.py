"""Layers and operators of the kernels that torch.compile generates."""

import contextlib
import operator
import sys
from types import SimpleNamespace

import pytest
import torch

from curvescope.profiling.attribution.fused_kernels import FusedOperator, decode_shares
from curvescope.profiling.attribution.operator_work import count_work
from curvescope.profiling.collect import inductor
from curvescope.profiling.collect.inductor import kernels_of
from curvescope.profiling.measure.visit import record_step
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import Network
from curvescope.profiling.workload.own_step import OwnStep

aten = torch.ops.aten


def compiled_graph():
    """relu(x @ w) + 1 and its mean, of two layers and the root, as Inductor has it after
    compilation.
    """
    graph = torch.fx.Graph()
    layers = {"fc": "L['self'].block.0", "relu": "L['self']._modules['block']._modules['act']"}

    def call(target, *arguments, shape, layer=None, backward=False):
        node = graph.create_node(
            "call_function", target, arguments, name=target.name().split("::")[1].split(".")[0]
        )
        node.meta = {"val": torch.empty(shape, device="meta"), "original_aten": target}
        stack = "fwd_nn_module_stack" if backward else "nn_module_stack"
        node.meta[stack] = {
            "root": ("", object),
            **({layer: (layers[layer], object)} if layer else {}),
        }
        return node

    x, w = graph.placeholder("x"), graph.placeholder("w")
    x.meta, w.meta = (
        {"val": torch.empty(4, 8, device="meta")},
        {"val": torch.empty(8, 16, device="meta")},
    )
    product = call(aten.mm.default, x, w, shape=(4, 16), layer="fc")
    relu = call(aten.relu.default, product, shape=(4, 16), layer="relu", backward=True)
    view = call(aten.view.default, relu, [64], shape=(64,))
    added = call(aten.add.Tensor, view, 1, shape=(64,))
    pair = graph.call_function(operator.getitem, (added, 0))
    pair.meta = {"original_aten": aten.add.Tensor}
    mean = call(aten.mean.dim, added, [0], shape=())
    graph.output((added, mean))
    return SimpleNamespace(graph=graph)


def test_a_kernel_has_the_layers_and_operators_of_its_nodes():
    nodes = {
        "extern_kernels.mm:1": ["mm"],
        "cpp_fused_add_relu_0:2": ["relu", "view", "add", "getitem", "gone"],
        "cpp_fused_mean_1:3": ["mean"],
        "cpp_fused_2:4": ["w"],
    }
    product, fused, mean, copied = kernels_of(compiled_graph(), nodes)
    assert (product.name, product.generated, product.layer) == (
        "extern_kernels.mm",
        False,
        "block.0",
    )
    assert fused.operators == (
        FusedOperator("block.act", "aten::relu", 2 * 64 * 4),
        FusedOperator(None, "aten::add", 2 * 64 * 4),
    )
    # It reads the product and writes the sum; one comparison is no FLOP by the convention of
    # `relu`, one sum is.
    assert (fused.flops, fused.bytes_compulsory) == (64 + 64, 2 * 64 * 4)
    assert (mean.flops, mean.bytes_compulsory) == (64, 64 * 4 + 4)
    # A kernel of inputs alone changes their format, for the layer that reads them.
    assert copied.operators == (FusedOperator("block.0", "aten::copy_", 2 * 8 * 16 * 4),)


def test_a_symbolic_extent_is_not_asked_for():
    """torch.compile would make the answer a condition of the graph, or refuse."""
    compiled = compiled_graph()
    symbolic = SimpleNamespace(shape=(object(),), dtype=torch.float32)
    for node in compiled.graph.nodes:
        if node.op == "call_function":
            node.meta["val"] = symbolic
    (kernel,) = kernels_of(compiled, {"cpp_fused_add_relu_0:1": ["relu", "add"]})
    assert [one.bytes for one in kernel.operators] == [0, 0]
    assert (kernel.flops, kernel.bytes_compulsory) == (None, None)


def test_a_module_of_the_users_model_has_its_path_there(monkeypatch):
    """Dynamo numbers the modules of a graph by their id, and the calls of each; compiled modules
    are wrapped.
    """
    monkeypatch.setattr(inductor, "_PATHS", {})
    inner = torch.nn.Linear(2, 2)
    encoder = torch.nn.Module()
    encoder._orig_mod = torch.nn.Sequential(inner)
    model = torch.nn.Module()
    model.encoder = encoder
    graph = torch.fx.Graph()
    node = graph.create_node("call_function", aten.relu.default, ())

    def layer_of(module, source):
        node.meta["nn_module_stack"] = {f"{id(module)}@1": (source, type(module))}
        return inductor._layer(node)

    assert layer_of(inner, "G['net'].0") == "0"
    inductor.name_modules(model)
    assert layer_of(inner, "G['net'].0") == "encoder.0"
    assert layer_of(encoder._orig_mod, "G['net']") == "encoder"
    inductor.name_modules(None)
    assert layer_of(inner, "L['self'].0") == "0"


def test_what_the_user_compiles_is_kept_with_the_users_options(monkeypatch):
    calls = []

    class Wrapper:
        """torch's, as far as it matters: it takes `compile_fx` when it compiles."""

        def __call__(self, graph, inputs):
            return compiler.compile_fx(
                graph, inputs, config_patches={"max_autotune": True, "fx_graph_cache": True}
            )

    def compile_fx(graph, inputs, inner_compile=None, config_patches=None):
        calls.append((inner_compile, dict(config_patches or {})))
        return f"{graph} compiled"

    compiler = SimpleNamespace(compile_fx=compile_fx)
    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Wrapper)
    monkeypatch.setattr(torch, "_inductor", SimpleNamespace(compile_fx=compiler), raising=False)
    monkeypatch.setitem(sys.modules, "torch._inductor", torch._inductor)
    monkeypatch.setattr(
        inductor, "_switches", lambda: contextlib.nullcontext({"fx_graph_cache": False, "trace": 2})
    )
    for _ in range(2):  # once is enough
        inductor.keep_kernels()
    assert Wrapper()("graph", ()) == "graph compiled"
    # What the user chose stays as it is.
    assert calls == [
        (inductor._compile_part, {"max_autotune": True, "fx_graph_cache": True, "trace": 2})
    ]
    compiler.compile_fx("graph", (), inner_compile=print)
    assert calls[1] == (print, {})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
def test_a_users_compiled_module_has_layers(monkeypatch, tmp_path, one_compile_thread):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    from torch._inductor import compile_fx

    for where, name in (
        (torch._TorchCompileInductorWrapper, "__call__"),
        (compile_fx, "compile_fx"),
    ):
        monkeypatch.setattr(where, name, getattr(where, name))  # put back at the end

    def make_step(batch):
        encoder = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU())
        model = torch.nn.ModuleDict(
            {"encoder": torch.compile(encoder), "head": torch.nn.Linear(8, 2)}
        )
        inputs = torch.randn(batch, 8)

        def step():
            model["head"](model["encoder"](inputs)).sum().backward()

        step.module = model
        return step

    workload = OwnStep(make_step, name="made")
    workload.try_step(4)
    rows = record_step(workload, count_work).kernels
    shares = [share for row in rows if row.get("fused") for share in decode_shares(row["fused"])]
    assert {share.layer for share in shares} >= {"encoder.1", "encoder.2"}
    assert {row["layer"] for row in rows} >= {"encoder.0", "head"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
def test_compiled_steps_have_layers(monkeypatch, tmp_path, one_compile_thread):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def build():
        return torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        )

    network = Network("made:build", "", (8,), build, 2)
    workload = Workload(network, mode="training", compiled=True)
    workload.load(4)
    workload.try_step(4)
    rows = record_step(workload, count_work).kernels
    fused = [row for row in rows if row.get("fused")]
    layers = {share.layer for row in fused for share in decode_shares(row["fused"])}
    assert {"1", "2"} <= layers
    assert {row["phase"] for row in fused} == {"forward", "backward"}
    of_products = {
        (r["layer"], r["phase"])
        for r in rows
        if r["name"].startswith("mkl ") or r["op"] == "aten::addmm"
    }
    assert {("0", "forward"), ("3", "forward"), ("0", "backward")} <= of_products
    # The normalisation is several nodes: mean, variance, difference, square root and more.
    normalising = [
        row for row in fused if "1" in {share.layer for share in decode_shares(row["fused"])}
    ]
    assert any(row.get("flops") for row in normalising if row["phase"] == "forward")
    assert workload.layer_classes() == {"0": "Linear", "1": "LayerNorm", "2": "ReLU", "3": "Linear"}
    assert all(name.startswith("curvescope ") for name in inductor.COMPILED)
