"""Advice for a recorded program of JAX is in its own words, and its command is the next one."""

from types import SimpleNamespace

import pandas as pd
import pyarrow as pa

from curvescope.analysis.causes.numbers import suggest_precision
from curvescope.analysis.causes.single_profile import ProfiledStep
from curvescope.analysis.diagnosis.suggested import _advise, _is_jax, _is_torch
from curvescope.analysis.render.advice import next_commands
from curvescope.experiments.factors import all_facts
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.experiments import Scope

from ...tables import ask_each

H100 = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}
FP32, TF32 = "void wgrad_alg0_engine_NHWC<float, 128, 5>(int)", "sm90_xmma_gemm_f32f32_tf32f32_f32"


def step_of(*kernels, **facts):
    groups = pd.DataFrame(
        [
            {"name": name, "op": None, "layer": "conv1", "phase": "backward", "kind": "kernel"}
            | {"ms": 5.0, "own_ms": 5.0, "calls": 1.0, "flops": None}
            for name in kernels
        ]
    )
    facts = {"is_torch": False, "is_jax": True, **facts}
    return ProfiledStep(
        time_ms=10.0,
        batch=None,
        steps=5,
        trains=True,
        on_host=False,
        hardware=hardware_of({"device": H100}),
        groups=groups,
        copies=pd.DataFrame(),
        **facts,
    )


def test_tf32_is_suggested_by_jaxs_setting():
    step = step_of(FP32)
    advised = _advise(suggest_precision(step), all_facts(Scope.STEP, "cuda"), step)
    assert advised.suggestion.factors == ("jax_tf32",)
    assert advised.do == "run the products of the step in TF32"
    assert advised.how.startswith("JAX_DEFAULT_MATMUL_PRECISION=tensorfloat32")


def test_tf32_is_not_suggested_to_jax_where_products_run_in_it():
    assert suggest_precision(step_of(FP32, TF32)) is None
    # torch has one setting for products of matrices, and one for convolutions
    torch = step_of(FP32, TF32, is_torch=True, is_jax=False)
    assert suggest_precision(torch).factors == ("tf32", "bf16_autocast")


@ask_each(
    ("name", "domain", "of_jax"),
    [
        ("XlaModule:#hlo_module=jit_update,program_id=7#", "TSL", True),
        ("XlaModule:#prefix=args[0],hlo_module=jit_stage,program_id=7#", "TSL", True),
        ("XlaModule:#hlo_module=cluster_0,program_id=7#", "TSL", False),
        ("XlaModule:#hlo_module=jit_update,program_id=7#", None, False),
    ],
)
def test_the_modules_of_xla_tell_that_jax_ran_the_program(name, domain, of_jax):
    ranges = pa.table({"name": pa.array([name]), "domain": pa.array([domain], pa.string())})
    recording = SimpleNamespace(meta={}, arrow=lambda *_: ranges)
    assert _is_jax(recording) == of_jax
    assert _is_torch(recording, pd.DataFrame({"op": [None], "name": [None]})) == (not of_jax)


def commands_of(*words, batch=None, is_jax=True, tried=()):
    suggestions = [SimpleNamespace(suggestion=SimpleNamespace(factors=tried))] if tried else []
    groups = pd.DataFrame({"layer": ["conv1"], "op": [None], "calls": [1.0]})
    step = SimpleNamespace(is_jax=is_jax, is_torch=not is_jax, groups=groups, calls=pd.DataFrame())
    breakdown = SimpleNamespace(batch=batch)
    return dict(
        next_commands(
            "run",
            SimpleNamespace(
                breakdown=breakdown, advised=suggestions, step=step, command=tuple(words)
            ),
        )
    )


@ask_each(
    ("words", "batch", "after"),
    [
        (("--batch-size", "64", "--steps", "60"), 64, "--batch-size '{batch}' --steps 60"),
        (("--batch_size=64",), 64, "'--batch_size={batch}'"),
        (("-b", "8"), 8, "-b '{batch}'"),
        (("--test-batch-size", "1000", "--bs", "32"), 32, "--test-batch-size 1000 --bs '{batch}'"),
        (("--per_device_train_batch_size", "4"), 4, "--per_device_train_batch_size '{batch}'"),
    ],
)
def test_the_argument_that_is_the_batch_size_gives_way_to_the_sizes(words, batch, after):
    for facts in ({}, {"is_jax": False, "tried": ("tf32",), "batch": 7}):
        commands = commands_of("python", "train.py", *words, **facts).values()
        assert f"curvescope diagnose --batch {batch} -- python train.py {after}" in commands


def test_a_command_without_its_batch_size_has_it_as_a_constant():
    words = ("python", "train.py", "--batches", "9", "--steps", "60")
    (command, *_) = commands_of(*words, batch=8, is_jax=False, tried=("tf32",)).values()
    start = "curvescope diagnose --batch 8 --assign 'batch_size={batch}' -- python train.py"
    assert command == f"{start} --batches 9 --steps 60"
    assert "--step FILE.py" not in " ".join(commands_of(*words).values())
