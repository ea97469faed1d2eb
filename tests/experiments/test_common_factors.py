"""What commonly helps, on real modules: each change does what it says, and says where it cannot be
made.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from curvescope.analysis.diagnosis.remedies import insert_names
from curvescope.base.errors import CurvescopeError
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import factor_of, step_change
from curvescope.profiling.attribution.kernel_precision import precisions_of_products
from curvescope.profiling.measure.configuration import Configuration
from curvescope.profiling.recording.experiments import Scope, name_together

from ..tables import ask_each

OWN = Configuration.of_step("steps.py:make_step", "cpu")
SGEMM = "ampere_sgemm_128x64_nn"
TF32_GEMM = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"
BF16_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
BF16_ATTENTION = "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, bfloat16_t>>"


class Training:
    """A workload that trains a module, or runs it without gradients."""

    device, compiled = "cpu", False

    def __init__(self, optimizer=torch.optim.AdamW, module=None, gradients=True):
        torch.manual_seed(0)
        self.model = module or nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
        self.optimizer = optimizer(self.model.parameters(), lr=0.01) if gradients else None
        self.output_dtype = None

    def load(self, batch):
        self.x = torch.ones(batch, 6)

    def submit(self):
        if self.optimizer is None:
            with torch.no_grad():
                return self.model(self.x)
        self.optimizer.zero_grad()
        output = self.model(self.x)
        self.output_dtype = output.dtype
        output.float().pow(2).mean().backward()
        self.optimizer.step()
        return output.detach()


def steps_of(name, workload, **facts):
    change = step_change(name)
    target = Target(OWN, (2,), **facts)
    assert change.reason_against(target) is None
    steps = change.change(workload, target)
    steps.load(2)
    return steps


def flags(workload):
    return {(group["fused"], group["foreach"]) for group in workload.optimizer.param_groups}


@ask_each(
    ("name", "expected"), [("fused_optimizer", (True, False)), ("foreach_optimizer", (False, True))]
)
def test_the_optimizer_of_a_step_gets_another_form_and_computes_the_same(name, expected):
    plain, changed = Training(), Training()
    plain.load(2)
    steps = steps_of(name, changed)
    for _ in range(3):
        plain.submit()
        steps.submit()
    assert flags(changed) == {expected}
    assert flags(plain) != {expected}
    for one, other in zip(plain.model.parameters(), changed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_without_updates_the_parameters_keep_their_values_and_all_else_of_the_step_runs():
    plain, changed = Training(), Training()
    before = [parameter.detach().clone() for parameter in changed.model.parameters()]
    plain.load(2)
    steps = steps_of("no_update", changed)
    assert torch.equal(plain.submit(), steps.submit())
    for one, other, old in zip(
        plain.model.parameters(), changed.model.parameters(), before, strict=True
    ):
        torch.testing.assert_close(one.grad, other.grad)
        assert torch.equal(other, old)
        assert not torch.equal(one, old)
    assert [len(group["params"]) for group in changed.optimizer.param_groups] == [4]
    with pytest.raises(CurvescopeError, match="the steps run no optimizer of torch"):
        steps_of("no_update", Training(gradients=False)).submit()


def test_an_optimizer_that_cannot_be_changed_says_so():
    with pytest.raises(CurvescopeError, match="_Lbfgs has no option fused"):
        steps_of(
            "fused_optimizer", Training(lambda parameters, lr: _Lbfgs(parameters, lr=lr))
        ).submit()
    fused = Training(lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, fused=True))
    with pytest.raises(CurvescopeError, match="AdamW has fused=True already"):
        steps_of("fused_optimizer", fused).submit()
    with pytest.raises(CurvescopeError, match="the steps run no optimizer of torch"):
        steps_of("fused_optimizer", Training(gradients=False)).submit()
    known = Target(OWN, (2,), phases=frozenset({"forward"}))
    assert (
        step_change("fused_optimizer").reason_against(known)
        == "the steps run no optimizer of torch"
    )


class _Lbfgs(torch.optim.LBFGS):
    def step(self, closure=None):
        return super().step(closure or (lambda: torch.zeros(())))


def test_products_compute_in_bf16_and_the_parameters_stay_in_fp32():
    workload = Training()
    steps_of("bf16_autocast", workload).submit()
    assert workload.output_dtype == torch.bfloat16
    assert {parameter.dtype for parameter in workload.model.parameters()} == {torch.float32}
    half = Target(Configuration("alexnet", precision="bf16"), (2,))
    assert step_change("bf16_autocast").reason_against(half) == "the steps run in bf16 already"


@ask_each(
    ("kernels", "refused"),
    [
        ((), ()),
        ((SGEMM,), ()),
        ((BF16_GEMM,), ("bf16_autocast", "tf32")),
        ((BF16_GEMM, BF16_ATTENTION), ("bf16_autocast", "tf32")),
        ((BF16_GEMM, SGEMM), ()),
        ((TF32_GEMM,), ("tf32",)),
        # the name of this one says nothing
        ((BF16_GEMM, "gemv2T_kernel_val<int, int, float, float, float, float, 128>"), ()),
    ],
)
def test_products_that_are_short_by_their_kernels_are_not_made_short(kernels, refused):
    """A model that its user stores in bf16 has no precision in its configuration."""
    target = Target(OWN, (2,), precisions=precisions_of_products([*kernels, "elementwise"]))
    changes = ("bf16_autocast", "tf32")
    against = {name: step_change(name).reason_against(target) for name in changes}
    assert tuple(name for name, why in against.items() if why is not None) == refused


def test_inference_mode_is_for_steps_without_gradients():
    result = steps_of("inference_mode", Training(gradients=False)).submit()
    assert result.is_inference()
    with pytest.raises(CurvescopeError, match="the steps compute gradients"):
        steps_of("inference_mode", Training()).submit()
    again = steps_of("inference_mode", Training(gradients=False))
    with torch.inference_mode(), pytest.raises(CurvescopeError, match="in inference mode already"):
        again.submit()
    trains = Target(OWN, (2,), phases=frozenset({"forward", "backward"}))
    assert step_change("inference_mode").reason_against(trains) == "the steps compute gradients"
    assert (
        step_change("prepacked_linear")
        .reason_against(trains)
        .startswith("the steps compute gradients")
    )


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_packed_linear_layers_compute_the_same_and_train_not():
    plain, packed = Training(gradients=False), Training(gradients=False)
    plain.load(2)
    torch.testing.assert_close(steps_of("prepacked_linear", packed).submit(), plain.submit())
    assert packed.model[0].forward.__qualname__ != nn.Linear.forward.__qualname__
    with pytest.raises(CurvescopeError, match="packed weights have none"):
        steps_of("prepacked_linear", Training()).submit()
    with pytest.raises(CurvescopeError, match="no linear layer in fp32"):
        steps_of("prepacked_linear", Training(module=nn.Sequential(nn.LayerNorm(6))))


def test_weights_are_stored_in_the_other_order_once_where_layers_share_them():
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))
    module[1].weight = module[0].weight
    steps_of("other_layout", Training(module=module)).submit()
    assert {layer.weight.stride() for layer in module} == {(1, 6), (1, 2)}
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_the_weights_that_recorded_products_multiply_by_are_stored_in_the_other_order():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.other = nn.Embedding(5, 6), nn.Linear(6, 6)

        def forward(self, x):
            return self.other(x) @ self.table.weight.t()

    module = Tied()
    steps_of("other_layout", Training(module=module), weights=("table.weight",)).submit()
    assert (module.table.weight.stride(), module.other.weight.stride()) == ((1, 5), (6, 1))
    whole = nn.Linear(6, 2)  # a layer that is the whole model has the name of its class
    steps_of("other_layout", Training(module=whole), weights=("Linear.weight",)).submit()
    assert whole.weight.stride() == (1, 2)


def test_instructions_name_the_parameters():
    how = step_change("other_layout").how
    one, ends = (
        insert_names(how, ["decoder.token_embedding.weight"]),
        insert_names(how, [f"h.{i}.fc.weight" for i in range(12)]),
    )
    assert one.startswith(
        "for name in ['decoder.token_embedding.weight']:\n    weight = model.get_parameter(name)"
    )
    assert "[name for name, _ in model.named_parameters() if name.endswith(('fc.weight',))]" in ends
    assert "that of the embedding" in insert_names(how, ())
    assert insert_names("fused=True", ["a"]) == "fused=True"
    assert insert_names(None, ["a"]) is None


def test_threads_are_halved_only_where_half_of_them_is_no_other_change(monkeypatch):
    set_to = []
    torch_ = SimpleNamespace(get_num_threads=lambda: 8, set_num_threads=set_to.append)
    monkeypatch.setattr("curvescope.experiments.factors.processor.import_torch", lambda: torch_)
    monkeypatch.setattr("curvescope.experiments.factors.processor.physical_cores", lambda: 6)
    for name in ("half_threads", "physical_cores"):
        step_change(name).prepare(Target(OWN, (2,)))
    assert set_to == [4, 6]
    torch_.get_num_threads = lambda: 2
    for name, why in (("half_threads", "half of 2 threads is one"), ("physical_cores", "(2 of 6)")):
        assert why in step_change(name).reason_against(Target(OWN, (2,)))


def test_changes_are_made_together_in_their_order():
    name = name_together(("fused_optimizer", "other_layout", "bf16_autocast"))
    workload = Training()
    steps_of(name, workload).submit()
    assert flags(workload) == {(True, False)}
    assert workload.model[0].weight.stride() == (1, 5)
    assert workload.output_dtype == torch.bfloat16
    assert (
        step_change(name).changed_results(Target(OWN, (2,)))
        == "products and convolutions have 8 significant bits"
    )
    facts = factor_of(name).facts(Scope.STEP, "cpu")
    assert facts.what.startswith(
        "the optimizer is fused and weights of matrix products are stored in the other order"
    )
    assert (facts.remedy, facts.how) == (None, None)
    refusals = Target(Configuration("alexnet", precision="fp16"), (2,))
    assert step_change(name).reason_against(refusals) == "the steps run in fp16 already"


def test_names_that_stand_for_no_factors_have_none():
    assert factor_of("fused_optimizer+no_such") is None
    assert factor_of(name_together(("fused_optimizer", "cold_caches"))).step is None
    with pytest.raises(KeyError):
        step_change("fused_optimizer+no_such")
