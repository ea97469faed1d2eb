"""Runs a script as Python does, with other numbers for some of its constants:
`assigned.py {"NAME": 32} SCRIPT …`.

A constant is a number in the script that has the name: `batch_size = 64`, `batch_size: int = 64`,
an argument's default, an argument of a call (`DataLoader(data, batch_size=64)`) or an entry of a
dictionary (`{"batch_size": 64}`). The file stays as it is. The program's own Python runs this file,
so it needs only the standard library.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from typing import Any


class Assigning(ast.NodeTransformer):
    """Replaces the constants of a tree, and notes the lines."""

    def __init__(self, values: Any) -> None:
        """Take the values by name."""
        self._values = values
        self.lines: dict[str, list[int]] = {name: [] for name in values}

    def _new(self, name: Any, value: Any) -> Any:
        is_number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
        if name not in self._values or not is_number:
            return value
        self.lines[name].append(value.lineno)
        return ast.copy_location(ast.Constant(self._values[name]), value)

    def visit_Assign(self, node: Any) -> Any:
        """`NAME = 64`, also `self.NAME = 64`."""
        for target in node.targets:
            node.value = self._new(_name_of(target), node.value)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: Any) -> Any:
        """`NAME: int = 64`."""
        node.value = self._new(_name_of(node.target), node.value)
        return self.generic_visit(node)

    def visit_keyword(self, node: Any) -> Any:
        """`call(NAME=64)`."""
        node.value = self._new(node.arg, node.value)
        return self.generic_visit(node)

    def visit_Dict(self, node: Any) -> Any:
        """`{"NAME": 64}`."""
        node.values = [
            self._new(getattr(key, "value", None), value)
            for key, value in zip(node.keys, node.values)  # noqa: B905 - Python 3.8 may run this
        ]
        return self.generic_visit(node)

    def visit_arguments(self, node: Any) -> Any:
        """`def function(NAME=64)`."""
        named = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
        pairs = zip(named, node.defaults)  # noqa: B905 - Python 3.8 may run this
        node.defaults = [self._new(argument.arg, value) for argument, value in pairs]
        pairs = zip(node.kwonlyargs, node.kw_defaults)  # noqa: B905
        node.kw_defaults = [self._new(argument.arg, value) for argument, value in pairs]
        return self.generic_visit(node)


def _name_of(target: Any) -> Any:
    return getattr(target, "id", None) or getattr(target, "attr", None)


def compile_with_values(source: Any, path: Any, values: Any) -> Any:
    """The code of a script with its constants replaced; exits with a message if it has none of a
    name.
    """
    assigning = Assigning(values)
    tree = assigning.visit(ast.parse(source, path))
    for name, lines in assigning.lines.items():
        if not lines:
            sys.exit(
                f"curvescope: {path} has no number named {name}, as in `{name} = 64`; --assign "
                "takes the name that the script gives it"
            )
    return compile(ast.fix_missing_locations(tree), path, "exec")


def _run() -> None:
    values = json.loads(sys.argv[1])
    path = sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    with open(path, "rb") as file:
        code = compile_with_values(file.read(), path, values)
    own = sys.modules["__main__"].__dict__
    for name in [name for name in own if not name.startswith("__")]:
        del own[name]
    own.update(__file__=path, __doc__=None)
    exec(code, own)  # noqa: S102 - the user's own script


if __name__ == "__main__":
    _run()
