"""Factors of JAX: threads, fast mathematics, TF32, donated arguments and compilation, by its
settings and XLA's flags.

All but donation are variables of the environment, which a process reads when it loads JAX. So they
change programs too.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

from ...base.errors import CurvescopeError
from ...profiling.workload.steps import ChangedSteps
from ..factor import ON_GPU, Factor, StepChange, Target, change_environment, set_by

_JAX = ("jax",)
_FAST = "--xla_cpu_enable_fast_math=true"


def _with_flag(flag: str) -> dict[str, str]:
    """XLA's flags of this process, and another."""
    flags = os.environ.get("XLA_FLAGS")
    return {"XLA_FLAGS": f"{flags} {flag}" if flags else flag}


JAX_ONE_THREAD = Factor(
    name="jax_one_thread",
    what="XLA computes on one thread",
    remedy="run {where} on one thread",
    refuses=ON_GPU,
    step=change_environment({"NPROC": "1"}, common=21),
    frameworks=_JAX,
    sets="threads",
)
JAX_FAST_MATH = Factor(
    name="jax_fast_math",
    what="XLA may reorder sums and approximate functions",
    remedy="let XLA compile {where} with fast mathematics",
    refuses={"cuda": "it is a flag of XLA's CPU compiler"},
    step=StepChange(
        how=set_by({"XLA_FLAGS": _FAST}),
        common=22,
        changed_results=lambda _: "sums have another order, and numbers without a value may differ",
        environment=_with_flag(_FAST),
    ),
    frameworks=_JAX,
)
JAX_TF32 = Factor(
    name="jax_tf32",
    what="products of fp32 compute in TF32",
    remedy="run the products of {where} in TF32",
    refuses={"cpu": "TF32 is a format of NVIDIA's GPUs"},
    step=change_environment(
        {"JAX_DEFAULT_MATMUL_PRECISION": "tensorfloat32"},
        common=23,
        changed_results=lambda _: "products and convolutions have 11 significant bits",
    ),
    frameworks=_JAX,
)


# Donated arguments, which a compiled function may write over: without them it needs memory for
# both.


def _undonate(_: Target) -> None:
    """Let `jax.jit` forget which arguments are donated, for the functions that are compiled from
    now on.
    """
    import jax

    usual: Any = jax.jit

    @wraps(usual)
    def without_donation(*arguments: Any, **settings: Any) -> Any:
        donated = [settings.pop(name, None) for name in ("donate_argnums", "donate_argnames")]
        _DONATED.extend(argument for argument in donated if argument not in (None, (), []))
        return usual(*arguments, **settings)

    jax.jit = without_donation


_DONATED: list[Any] = []  # what this process's functions would have donated


class _Undonated(ChangedSteps):
    """Steps that are refused once they were made if they donate nothing."""

    def load(self, batch: int) -> None:
        super().load(batch)
        if not _DONATED:
            raise CurvescopeError("no function is compiled with donated arguments")


JAX_WITHOUT_DONATION = Factor(
    name="jax_without_donation",
    what="compiled functions write over none of their arguments",
    remedy="let {where} donate nothing",
    step=StepChange(
        how="jax.jit(…) without donate_argnums and donate_argnames",
        common=24,
        prepare=_undonate,
        change=lambda workload, _: _Undonated(workload),
    ),
    frameworks=_JAX,
)
JAX_WITHOUT_JIT = Factor(
    name="jax_without_jit",
    what="every operator is compiled and run alone",
    remedy="run {where} without jax.jit",
    step=change_environment({"JAX_DISABLE_JIT": "1"}, common=25),
    frameworks=_JAX,
)
