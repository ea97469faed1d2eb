"""Repeated layers: which are one term, how it is called, and which deviate."""

import numpy as np
import pandas as pd
import pyarrow as pa

from curvescope.analysis.decompose.repeated_layers import (
    classes_with,
    find_repeated_layers,
    group_of,
)

from ...tables import ask_each

COLUMNS = ["batch", "layer", "phase", "op", "arguments", "calls"]
NONE = pa.table({name: pa.array([], pa.string()) for name in COLUMNS})


def times_of(layers, rounds=9, slow=(), factor=1.5, noise=0.02):
    """Times of layers of 1 ms each, in steps that vary by 2 %."""
    random = np.random.default_rng(1)
    rows = [
        {
            "batch": batch,
            "step": step + 100 * batch,
            "layer": layer,
            "phase": "forward",
            "name": "gemm",
            "calls": 1,
        }
        | {
            "exclusive_ms": (factor if layer in slow and batch == 2 else 1.0)
            * np.exp(random.normal(0, noise))
        }
        for batch in (1, 2)
        for step in range(rounds)
        for layer in layers
    ]
    return pd.DataFrame(rows)


def operators_of(shapes):
    """One product for each layer and batch size, of that width."""
    rows = [
        (batch, layer, "forward", "aten::mm", f"[{batch},{width}]", 1)
        for layer, width in shapes.items()
        for batch in (1, 2)
    ]
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def groups_of(shapes, classes=None, **options):
    classes = classes or dict.fromkeys(shapes, "Linear")
    return find_repeated_layers(times_of(shapes, **options), operators_of(shapes), classes)


def test_equal_blocks_are_one_and_named_by_their_pattern():
    found = groups_of(
        {f"h.{i}.mlp.c_fc": 4 for i in range(12)} | {f"h.{i}.attn": 8 for i in range(12)}
    )
    assert {name: len(layers) for name, layers in found.items()} == {
        "h.*.mlp.c_fc": 12,
        "h.*.attn": 12,
    }
    assert group_of(found)["h.7.attn"] == "h.*.attn"
    classes = classes_with({"h.0.attn": "Attention"}, found)
    assert (classes["h.*.attn"], classes["h.*.mlp.c_fc"]) == ("Attention, 12 times", "12 times")


@ask_each(
    ("shapes", "groups"),
    [
        (
            {"features.0": 3, "features.2": 64, "features.4": 128},
            [],
        ),  # as of VGG: each does other work
        ({"l1.0.conv": 64, "l1.1.conv": 256, "l1.2.conv": 256, "l1.3.conv": 256}, ["l1.1-3.conv"]),
        ({"0": 1, "1": 2, "2": 1, "3": 2, "4": 1}, ["0,2,4", "1,3"]),
        ({str(i): i % 2 for i in range(20)}, ["0,2,…,18", "1,3,…,19"]),
        (
            {f"block.{i}.layer.{j}": 4 for i in range(3) for j in range(2)},
            ["block.*.layer.0", "block.*.layer.1"],
        ),
        ({"conv1": 4, "conv2": 4}, []),  # names without a number of their own
    ],
)
def test_layers_that_do_other_work_stay_apart(shapes, groups):
    assert list(groups_of(shapes)) == groups


def test_layers_of_other_classes_stay_apart():
    shapes = {"0": 4, "1": 4, "2": 4}
    assert groups_of(shapes, {"0": "Linear", "1": "Linear", "2": "LoRA"}) == {"0-1": ("0", "1")}


def test_a_member_that_deviates_is_a_term_of_its_own():
    shapes = {f"h.{i}": 4 for i in range(12)}
    assert groups_of(shapes, slow=("h.5",)) == {
        "h.0-4,6-11": tuple(f"h.{i}" for i in range(12) if i != 5)
    }
    assert list(groups_of(shapes, slow=("h.5",), factor=1.1)) == [
        "h.*"
    ]  # a tenth more is no finding
    assert list(groups_of(shapes, slow=("h.5",), noise=1.0)) == [
        "h.*"
    ]  # nor is a half that is noise


def test_without_operators_the_kernels_tell_which_layers_are_equal():
    times = times_of([f"h.{i}" for i in range(4)]).assign(grid_x=8)
    times.loc[times["layer"] == "h.3", "grid_x"] = 16
    assert find_repeated_layers(times, NONE, {}) == {"h.0-2": ("h.0", "h.1", "h.2")}


def test_a_marked_layer_that_sleeps_deviates_though_its_kernels_do_not():
    shapes = {f"h.{i}": 4 for i in range(4)}
    steps = {2: pd.DataFrame({f"h.{i}": np.full(9, 4.0 if i == 2 else 2.0) for i in range(4)})}
    found = find_repeated_layers(
        times_of(shapes), operators_of(shapes), dict.fromkeys(shapes, "Linear"), steps
    )
    assert found == {"h.0-1,3": ("h.0", "h.1", "h.3")}


def scopes_of(shapes):
    return groups_of({f"model/{name}": width for name, width in shapes.items()}, {"": ""})


def test_ranges_and_scopes_that_number_layers_and_tokens_are_one():
    """512 rows of a model that names its layer and token in each range."""
    found = scopes_of({f"layer_{i}_token_{t}/layer_{i}_mlp": 4 for i in range(3) for t in range(4)})
    assert {name: len(layers) for name, layers in found.items()} == {
        "model/layer_*_token_*/layer_*_mlp": 12
    }


def test_a_number_that_is_the_same_in_all_scopes_stays():
    found = scopes_of({f"encoder_1/layer_{i}/add": 4 for i in range(6)})
    assert list(found) == ["model/encoder_1/layer_*/add"]


def test_a_name_may_hold_a_star_of_its_own():
    """TensorRT names a layer so; its star was taken for the place of the number, and there was no
    second number.
    """
    alike = {f"(Unnamed Layer* {i}) [PluginV2IOExt]": 4 for i in (76, 77)}
    other = {"(Unnamed Layer* 80) [PluginV2IOExt]": 8}
    assert list(scopes_of(alike)) == ["model/(Unnamed Layer* *) [PluginV2IOExt]"]
    assert list(scopes_of(alike | other)) == ["model/(Unnamed Layer* 76-77) [PluginV2IOExt]"]
    assert list(groups_of({"top*.0.mlp": 4, "top*.1.mlp": 4, "top*.2.mlp": 8})) == ["top*.0-1.mlp"]


def test_scopes_of_other_work_stay_apart_and_numbers_tell_which():
    found = scopes_of({f"replica_{r}/layer_{i}": 4 + (i == 0) for r in (4, 6) for i in range(3)})
    assert {name: len(layers) for name, layers in found.items()} == {
        "model/replica_4,6/layer_1-2": 4,
        "model/replica_4,6/layer_0": 2,
    }


def test_experts_are_one_whatever_each_of_them_does():
    """Every expert has other tokens, and one of another class stays by itself."""
    shapes = {f"h.{i}.experts.{j}.up": 10 * i + j for i in range(2) for j in range(3)}
    classes = dict.fromkeys(shapes, "Linear")
    assert {name: len(of) for name, of in groups_of(shapes, classes).items()} == {
        "h.*.experts.*.up": 6
    }
    first = {layer: shape for layer, shape in shapes.items() if layer.startswith("h.0.")}
    assert list(groups_of(first, classes, slow=["h.0.experts.1.up"])) == ["h.0.experts.*.up"]
    other = classes | {"h.0.experts.1.up": "Adapter"}
    assert groups_of(first, other) == {"h.0.experts.*.up": ("h.0.experts.0.up", "h.0.experts.2.up")}


def test_kernels_that_xla_numbers_are_equal_work():
    """BERT in JAX had no repeated layer: `dot ynn_fusion.7` and `.8` are two instructions."""
    layers = [f"layer.{number}.{part}" for number in range(3) for part in ("query", "norm")]
    times = times_of(layers)
    numbers = times["layer"].map({layer: number for number, layer in enumerate(layers)})
    product = times["layer"].str.endswith("query")
    times["op"] = product.map({True: "ynn_fusion", False: "reduce"})
    times.loc[numbers > 1, "op"] += "." + numbers.astype(str)
    times["name"] = product.map({True: "dot ", False: ""}) + times["op"]
    found = find_repeated_layers(times, NONE, {})
    assert {name: len(members) for name, members in found.items()} == {
        "layer.*.query": 3,
        "layer.*.norm": 3,
    }
