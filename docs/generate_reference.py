"""Writes the reference pages that follow from the code: `python docs/generate_reference.py`; a test holds them to it.

Commands come from their argument parsers, devices and metrics from the TOML tables, the schema from `schema.py`, and
factors of experiments from their modules.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from curvescope.cli import COMMANDS, module_of
from curvescope.commands.bench import BENCHES
from curvescope.kernels.replay import factors
from curvescope.profiling.hardware import devices
from curvescope.profiling.measure.step_factors import STEP_FACTORS
from curvescope.profiling.readers import metrics
from curvescope.profiling.recording import schema_doc

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    return {
        DOCS / "reference" / "commands.md": commands_page(),
        DOCS / "reference" / "devices.md": devices_page(),
        DOCS / "reference" / "factors.md": factors_page(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        DOCS / "schema.md": schema_doc.schema_page(),
    }


def commands_page() -> str:
    """Every command with its arguments."""
    lines = [
        "# Commands",
        "",
        "Generated from the argument parsers; `curvescope COMMAND --help` prints the same.",
        "",
        "Exit codes: 0 done; 1 a requested check failed; 2 bad input or an unusable machine, and the "
        "message says what to do; 130 interrupted. `record` passes on the code of what it ran.",
    ]
    for name in COMMANDS:
        module = importlib.import_module(module_of(name), "curvescope")
        lines += _command(name, module)
        if name == "bench":
            for bench in BENCHES:
                lines += _command(f"bench {bench}", importlib.import_module(f"curvescope.commands.bench.{bench}"))
    return "\n".join(lines) + "\n"


def _command(name: str, module: ModuleType) -> Iterator[str]:
    parser = argparse.ArgumentParser(prog=f"curvescope {name}")
    module.add_arguments(parser)
    yield from ("", f"## curvescope {name}", "", (module.__doc__ or "").strip(), "")
    yield from ("| argument | meaning |", "|---|---|")
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
            yield f"| {_spelling(action)} | {_cell(meaning)} |"


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return _code(value or action.dest)
    value = value or action.dest.upper()
    return ", ".join(_code(f"{option} {value}" if action.nargs != 0 else option) for option in action.option_strings)


def devices_page() -> str:
    """Every GPU, each number with its source."""
    lines = [
        "# Devices",
        "",
        "Generated from `profiling/hardware/devices.toml`. Peaks are not stored: they follow from lanes, SMs and a "
        "clock, with one FMA as two FLOPs. What nobody has looked up says *not verified*.",
    ]
    for device in devices.devices():
        peak = device.peak_flops_per_s()
        lines += [
            "",
            f"## {device.key}",
            "",
            f"{device.name}, chip {device.chip}, {device.architecture.title()}, compute capability "
            f"{device.compute_capability}. Long kernels run at the {device.running_clock} clock"
            + (f": fp32 peak {peak / 1e12:.2f} TFLOP/s." if peak else "."),
            "",
            "| fact | value | source |",
            "|---|--:|---|",
        ]
        for name, fact in device.facts.items():
            lines.append(
                f"| `{name}` | {fact.value:,.0f} | {_cell(fact.source)}{'' if fact.verified else ' (not verified)'} |"
            )
    return "\n".join(lines) + "\n"


def factors_page() -> str:
    """Every factor that an experiment can change, and how a user sets it."""
    lines = [
        "# Factors",
        "",
        "Generated from `kernels/replay/factors/` and `profiling/measure/step_factors/`. An experiment changes one "
        "factor at a time. A factor without an instruction is an experiment only.",
    ]
    scopes = {
        "On one term alone": factors.all_facts(),
        "On complete steps": {name: one.FACTS for name, one in STEP_FACTORS.items()},
    }
    for title, facts in scopes.items():
        lines += ["", f"## {title}", "", "| factor | what changes | what a user does | how |", "|---|---|---|---|"]
        for name, one in facts.items():
            remedy = (one.remedy or "").format(where="the layer" if title == "On one term alone" else "the step")
            lines.append(f"| `{name}` | {_cell(one.what)} | {_cell(remedy)} | {_cell(one.how or '')} |")
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """What fills the measured columns, tool by tool."""
    lines = [
        "# Metrics",
        "",
        "Generated from `profiling/readers/metrics.toml`: what metrics of nvprof and Nsight Compute fill the measured "
        "columns of `kernels`. A column is a sum of metrics, each times a factor; it is filled only where every "
        "metric was recorded. Of the entries of one column and part "
        "the first that can be filled is taken; parts add up.",
        "",
        "| column | part | tool | known on | sum of | source |",
        "|---|---|---|---|---|---|",
    ]
    for metric in metrics.metrics():
        terms = " + ".join(
            f"{factor:g} × `{name}`" if factor != 1 else f"`{name}`" for name, factor in metric.terms.items()
        )
        lines.append(
            f"| `{metric.column}` | {metric.part} | {metric.tool} | {metric.generation} | {terms} "
            f"| {_cell(metric.source)} |"
        )
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    for path, page in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(page)
