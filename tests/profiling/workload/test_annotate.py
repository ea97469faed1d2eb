"""Ranges of a model's layers, seen through a domain that writes down what it is told."""

import nvtx
import pytest
import torch
from torch import nn

import curvescope


class Domain:
    """A stand-in for an NVTX domain under a tool: keeps the ranges, and their nesting."""

    def __init__(self):
        self.log, self.open, self.classes = [], [], {}

    def get_event_attributes(self, message, category=None):
        if category is not None:
            self.classes[message] = category
        return message

    def push_range(self, attributes):
        self.log.append("/".join([*self.open, attributes]))
        self.open.append(attributes)

    def pop_range(self):
        self.open.pop()


@pytest.fixture
def domain(monkeypatch):
    made = Domain()
    monkeypatch.setattr(nvtx, "get_domain", lambda name: made if name == "curvescope" else None)
    return made


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        # full backward hooks refuse modules that work in place; these do not
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return x + self.relu(self.conv(x))


@pytest.fixture
def model():
    return nn.Sequential(Residual(), nn.Flatten(), nn.Linear(32, 3))


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_model_that_is_one_layer_has_that_layer_by_its_class(domain):
    layer = nn.Linear(4, 2)
    with curvescope.annotate(layer):
        layer(torch.ones(1, 4)).sum().backward()
    assert list(dict.fromkeys(domain.log)) == ["Linear", "Linear backward"]
    assert domain.classes["Linear"] == "Linear"


def test_forward_ranges_nest_as_the_modules_do(domain, model):
    with curvescope.annotate(model), torch.no_grad():
        model(torch.zeros(1, 2, 4, 4))
    assert domain.log == ["0", "0/0.conv", "0/0.relu", "1", "2"]
    assert domain.classes == {
        "0": "Residual",
        "0.conv": "Conv2d",
        "0.relu": "ReLU",
        "1": "Flatten",
        "2": "Linear",
    }
    assert domain.open == []


def test_each_node_of_the_backward_pass_is_its_innermost_layers(domain, model):
    with curvescope.annotate(model):
        loss = model(torch.zeros(1, 2, 4, 4)).sum()
        domain.log.clear()
        loss.backward()
    assert [name for name in domain.log if name != "2 backward"] == [
        "1 backward",
        "0 backward",  # the addition
        "0.relu backward",
        "0.conv backward",
    ]
    assert "2 backward" in domain.log
    assert domain.open == []


def test_the_model_is_as_it_was_afterwards(domain, model):
    before = hooks(model)
    with curvescope.annotate(model):
        assert hooks(model) > before
        loss = model(torch.zeros(1, 2, 4, 4)).sum()
    assert hooks(model) == before
    domain.log.clear()
    loss.backward()  # a graph built inside marks nothing any more
    model(torch.zeros(1, 2, 4, 4)).sum().backward()
    assert domain.log == []


def test_an_exception_in_a_layer_leaves_no_open_range(domain, model):
    with curvescope.annotate(model), pytest.raises(RuntimeError, match="channels"):
        model(torch.zeros(1, 5, 4, 4))
    assert domain.open == []


def test_blocks_nest_and_a_shared_module_is_marked_by_each_use(domain):
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, shared)
    with curvescope.annotate(model):
        model(torch.zeros(1, 3))
        assert domain.log == ["0", "0"]
        with curvescope.annotate(model):
            domain.log.clear()
            model(torch.zeros(1, 3))
    assert domain.log == ["0", "0/0", "0", "0/0"]
    assert domain.open == []


def test_outputs_of_any_structure(domain):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x, *, scale):
            return {"a": self.a(x) * scale, "b": [self.b(x)]}

    model = nn.ModuleDict({"pair": Pair()})
    with curvescope.annotate(model):
        out = model["pair"](torch.zeros(1, 3), scale=2.0)
        domain.log.clear()
        (out["a"] + out["b"][0]).sum().backward()
    assert {"pair.a backward", "pair.b backward", "pair backward"} == set(domain.log)


def test_work_before_and_after_a_child_is_the_containers(domain):
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x.exp()).exp()

    model = nn.Sequential(Around())
    with curvescope.annotate(model):
        out = model(torch.zeros(1, 3, requires_grad=True))
        domain.log.clear()
        out.sum().backward()
    assert [name for i, name in enumerate(domain.log) if i == 0 or domain.log[i - 1] != name] == [
        "0 backward",
        "0.inner backward",
        "0 backward",
    ]


def test_a_compiled_part_is_marked_as_a_whole(domain):
    class OptimizedModule(nn.Module):
        """What torch.compile returns, by its name."""

        def __init__(self, inner):
            super().__init__()
            self._orig_mod = inner

        def forward(self, x):
            return self._orig_mod(x)

    model = nn.Sequential(OptimizedModule(nn.Sequential(nn.Linear(3, 3))), nn.ReLU())
    with curvescope.annotate(model):
        model(torch.zeros(1, 3))
    assert domain.log == ["0", "1"]


def test_without_a_tool_it_changes_no_result_and_no_gradient(model):
    batch = torch.randn(1, 2, 4, 4)

    def stepped():
        model.zero_grad()
        result = model(batch)
        result.sum().backward()
        return [result.detach(), *(weight.grad for weight in model.parameters())]

    before = stepped()
    with curvescope.annotate(model):
        within = stepped()
    for values in (within, stepped()):
        assert all(torch.equal(one, two) for one, two in zip(before, values, strict=True))
    assert hooks(model) == 0


def test_a_function_that_hides_its_nodes_name_does_not_disturb(domain):
    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.name = "mine"
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient

    class Layer(nn.Module):
        def forward(self, x):
            return Doubling.apply(x)

    model = nn.Sequential(nn.Linear(2, 2), Layer())
    with curvescope.annotate(model):
        model(torch.ones(1, 2)).sum().backward()
    assert domain.log[:3] == ["0", "1", "1 backward"]
    assert set(domain.log[3:]) == {"0 backward"}
