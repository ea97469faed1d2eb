"""Networks by name, and user-defined factories of a `torch.nn.Module`.

Weights and data are random; nothing is downloaded. torch loads when a network is built, not before.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from ....base.errors import CurvescopeError
from ....base.standard_output import prints_to_stderr
from ..annotate import tensors_in

if TYPE_CHECKING:
    import torch

_RESNETS = ("resnet50", "resnet50_v1.5", "resnet101", "resnet101_v1.5", "resnet152",
            "resnet152_v1.5")  # fmt: skip
_MODULES = {  # by name, where it is an entry of NETWORKS
    **dict.fromkeys(("alexnet", "overfeat", "vgg_a", "vgg16", "vgg19"), ".plain"),
    **dict.fromkeys(("googlenet", "inception_bn", "inception_v3"), ".inception"),
    **dict.fromkeys(_RESNETS, ".resnet"),
    **dict.fromkeys(("bert_base", "bert_base_encoder"), ".bert"),
}


@dataclass(frozen=True)
class Network:
    """A network; `build` creates the module with random weights."""

    name: str
    paper: str  # publication that defines it, and choices that the publication leaves open
    input_shape: tuple[int, ...]  # of one sample
    build: Callable[[], torch.nn.Module]
    classes: int | None = 1000  # None where the loss needs no target
    reads_text: ClassVar[bool] = False  # whether a sample is a sequence of tokens

    def sample(
        self, batch: int, device: str, generator: torch.Generator
    ) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Random inputs, shape (batch, *input_shape), and targets, shape (batch,) or None."""
        import torch

        inputs = torch.randn((batch, *self.input_shape), device=device, generator=generator)
        if self.classes is None:
            return (inputs,), None
        targets = torch.randint(self.classes, (batch,), device=device, generator=generator)
        return (inputs,), targets

    def with_sequence_length(self, length: int) -> Network:
        """The same network with this number of tokens per sample, if it takes text, and so long a
        text.
        """
        raise CurvescopeError(f"--input-shape {length}: {self.name} does not take text.")

    def loss(self, output: Any, targets: Any) -> torch.Tensor:
        """Cross-entropy against the targets; without targets the mean square of all floating-point
        outputs.
        """
        import torch

        if targets is not None:
            return torch.nn.functional.cross_entropy(output, targets)
        squares = []
        for tensor in tensors_in(output):
            if tensor.is_floating_point():
                squares.append(tensor.square().mean())
        if not squares:
            raise CurvescopeError(
                f"{self.name} returned no floating-point tensor ({type(output).__name__}), which "
                "training needs. Measure it with --mode forward."
            )
        return torch.stack(squares).sum()


def names() -> list[str]:
    """The names that `get_network` accepts."""
    return list(_MODULES)


def get_network(name: str, sequence_length: int | None = None) -> Network:
    """Find a network by name, maybe with other tokens per sample than published."""
    if name not in _MODULES:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), _MODULES)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise CurvescopeError(
            f"Unknown network {name!r}: {hint}Known are {', '.join(names())}; "
            "`package.module:function --input-shape 3,224,224` uses your own."
        )
    module = importlib.import_module(_MODULES[name], __package__)
    network = module.NETWORKS[name]
    assert isinstance(network, Network)
    if sequence_length is None:
        return network
    return network.with_sequence_length(sequence_length)


def from_factory(spec: str, input_shape: tuple[int, ...]) -> Network:
    """Create a network from `package.module:function`, a function without arguments that returns a
    Module.

    The loss is the mean square of the outputs.
    """
    if not input_shape or min(input_shape) < 1:
        raise CurvescopeError(
            "--input-shape is the shape of one sample, e.g. 3,224,224; every extent must be at "
            "least 1."
        )
    factory = load_function("network", spec, "package.module:function, e.g. my_model:build")

    def build() -> torch.nn.Module:
        import torch

        try:
            model = factory()
        except Exception as error:
            raise CurvescopeError(
                f"network {spec}: the function failed with {type(error).__name__}: {error}. It is "
                "called without arguments."
            ) from error
        if not isinstance(model, torch.nn.Module):
            raise CurvescopeError(
                f"network {spec}: the function returned {type(model).__name__}, not a "
                "torch.nn.Module."
            )
        return model

    return Network(spec, "user's own", input_shape, build, classes=None)


IMPORTING: list[str] = []  # modules of the user that `load_function` is importing now


def load_function(option: str, spec: str, forms: str) -> Callable[..., Any]:
    """Load a user's function from `package.module:function`, or `path/to/file.py:function`.

    The working directory is searched first. `option` and the `forms` of its values are for
    messages.
    """
    module_name, _, function_name = spec.rpartition(":")
    if not (module_name and function_name):
        raise CurvescopeError(f"{option} {spec}: write {forms}.")
    _search_first(Path.cwd())
    IMPORTING.append(module_name)
    try:
        with prints_to_stderr():
            if module_name.endswith(".py"):
                module = _import_file(Path(module_name).expanduser())
            else:
                module = importlib.import_module(module_name)
    # Any error in the user's module is reported to the user.
    except (Exception, SystemExit) as error:
        where = ""
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            where = " It is searched in the working directory and among the installed packages."
        raise CurvescopeError(
            f"{option} {spec}: importing {module_name} failed with {type(error).__name__}: "
            f"{error}.{where}"
        ) from error
    finally:
        IMPORTING.pop()
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CurvescopeError(f"{option} {spec}: {module_name} has no function {function_name}.")
    return function  # type: ignore[no-any-return]


def _search_first(folder: Path) -> None:
    """Search a folder first when modules are imported.

    The folder is absolute: Python keeps the modules of a relative one, and so would go on to search
    the working directory of the time of the first import.
    """
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _import_file(path: Path) -> ModuleType:
    """Import a Python file as a module of its own; modules beside it can be imported too."""
    loader = importlib.util.spec_from_file_location(path.stem, path)
    if loader is None or loader.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    _search_first(path.resolve().parent)
    module = importlib.util.module_from_spec(loader)
    sys.modules.setdefault(path.stem, module)
    loader.loader.exec_module(module)
    return module
