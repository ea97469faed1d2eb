"""The networks that can be measured by name, and any `torch.nn.Module` factory of the user's.

Weights and data are random; nothing is downloaded. torch loads when a network is built, not before.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import CurvescopeError

if TYPE_CHECKING:
    import torch

# name -> module that defines it as NETWORKS[name]
_MODULES = {
    "alexnet": ".alexnet",
    "overfeat": ".overfeat",
    "vgg_a": ".vgg",
    "vgg16": ".vgg",
    "vgg19": ".vgg",
    "googlenet": ".googlenet",
    "inception_bn": ".googlenet",
    "inception_v3": ".inception_v3",
    **{f"resnet{depth}{suffix}": ".resnet" for depth in (50, 101, 152) for suffix in ("", "_v1.5")},
    "bert_base": ".bert",
    "bert_base_encoder": ".bert",
}


@dataclass(frozen=True)
class Network:
    """A network by name.

    Attributes:
        name: what the command line calls it.
        paper: the publication that defines it, and what was chosen where that leaves a choice.
        input_shape: shape of one sample.
        build: makes the module, with random weights.
        classes: classes of the targets; null where the loss needs no target.
    """

    name: str
    paper: str
    input_shape: tuple[int, ...]
    build: Callable[[], torch.nn.Module]
    classes: int | None = 1000

    def sample(self, batch: int, device: str, generator: torch.Generator) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Random inputs, shape (batch, *input_shape), and targets, shape (batch,) or null."""
        import torch

        inputs = torch.randn((batch, *self.input_shape), device=device, generator=generator)
        if self.classes is None:
            return (inputs,), None
        return (inputs,), torch.randint(self.classes, (batch,), device=device, generator=generator)

    @property
    def reads_text(self) -> bool:
        """Whether a sample is a sequence of tokens."""
        return False

    def with_sequence_length(self, length: int) -> Network:
        """The same network on samples of that many tokens.

        Raises:
            CurvescopeError: it reads no text, or not so much of it.
        """
        raise CurvescopeError(f"--sequence-length {length}: {self.name} reads no text.")

    def loss(self, output: Any, targets: Any) -> torch.Tensor:
        """Cross-entropy against the targets; without targets the mean of squares of every floating-point output."""
        import torch

        if targets is not None:
            return torch.nn.functional.cross_entropy(output, targets)
        squares = [tensor.square().mean() for tensor in _floating_tensors(output)]
        if not squares:
            raise CurvescopeError(
                f"{self.name} gave no floating-point tensor ({type(output).__name__}): nothing to train on. "
                "Measure it with --phase forward."
            )
        return torch.stack(squares).sum()


def _floating_tensors(output: Any) -> list[torch.Tensor]:
    import torch

    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [tensor for item in output for tensor in _floating_tensors(item)]
    return []


def names() -> list[str]:
    """The names that `get_network` knows."""
    return list(_MODULES)


def get_network(name: str, sequence_length: int | None = None) -> Network:
    """The network of that name.

    Args:
        name: one of `names()`.
        sequence_length: tokens of one sample, for networks that read text; null for the published number.

    Raises:
        CurvescopeError: there is none, and the message names those that come close; or it takes no such length.
    """
    if name not in _MODULES:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), _MODULES)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise CurvescopeError(
            f"Unknown network {name!r}: {hint}Known are {', '.join(names())}; "
            "`--model package.module:function --input-shape 3,224,224` takes your own."
        )
    network = importlib.import_module(_MODULES[name], __package__).NETWORKS[name]
    assert isinstance(network, Network)
    return network if sequence_length is None else network.with_sequence_length(sequence_length)


def from_factory(spec: str, input_shape: tuple[int, ...]) -> Network:
    """A network of the user's: `package.module:function`, a function without arguments that returns a Module.

    The module is looked for in the working directory first. The loss is the mean of squares of the outputs.

    Args:
        spec: as above.
        input_shape: shape of one sample.

    Raises:
        CurvescopeError: the spec, the module, the function or what it returns is not as above.
    """
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise CurvescopeError(f"--model {spec}: write package.module:function, as in my_model:build.")
    if not input_shape or min(input_shape) < 1:
        raise CurvescopeError("--input-shape is the shape of one sample, as in 3,224,224; every extent is at least 1.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises when imported is theirs to read
        raise CurvescopeError(
            f"--model {spec}: importing {module_name} failed with {type(error).__name__}: {error}. It is looked for in "
            "the working directory and among the installed packages."
        ) from error
    factory = getattr(module, function_name, None)
    if not callable(factory):
        raise CurvescopeError(f"--model {spec}: {module_name} has no function {function_name}.")

    def build() -> torch.nn.Module:
        import torch

        try:
            model = factory()
        except Exception as error:
            raise CurvescopeError(
                f"--model {spec}: {function_name}() failed with {type(error).__name__}: {error}. It is called without "
                "arguments."
            ) from error
        if not isinstance(model, torch.nn.Module):
            raise CurvescopeError(
                f"--model {spec}: {function_name}() returned {type(model).__name__}, not a torch.nn.Module."
            )
        return model

    return Network(spec, "user's own", input_shape, build, classes=None)
