"""Runs the example notebook and writes its outputs into it: `python docs/run_notebook.py`; a test
holds it to them.

Each cell runs as Jupyter runs it: the value of its last expression is its output, as HTML and as
text.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "look_at_a_recording.ipynb"


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells.

    Args:
        notebook: its document, format 4.
        folder: folder to run in.
    """
    names: dict[str, Any] = {}
    cells, count = [], 0
    with _inside(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell = {
                    **cell,
                    "execution_count": count,
                    "outputs": _run("".join(cell["source"]), names, count),
                }
            cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    body = ast.parse(source)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
        )
    if value is not None:
        page = getattr(value, "_repr_html_", lambda: None)()
        data = {"text/plain": _lines(repr(value) if page is None else f"<{type(value).__name__}>")}
        data |= {} if page is None else {"text/html": _lines(page)}
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "data": data,
                "metadata": {},
            }
        )
    return outputs


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def as_text(notebook: dict[str, Any]) -> str:
    """The notebook as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(as_text(executed(json.loads(NOTEBOOK.read_text()), NOTEBOOK.parent)))
