"""Writes the reference pages that follow from the code: `python docs/generate_reference.py`.

Commands come from their argument parsers, devices and metrics from the TOML tables, the schema from
`schema.py`, factors of experiments from their modules, documents of `--json` from the types that
describe them. These pages are those of the site, and are not committed. Others are, and a test
holds them to it: the schema of the documents, as programs of others rely on it, the pages for
agents, and the pages of evidence and of the H100, whose figures come from the stored data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from curvescope.analysis.causes import interventions
from curvescope.analysis.diagnosis.remedies import insert_names
from curvescope.base.arguments import default_experiments_s
from curvescope.cli import COMMANDS
from curvescope.commands.bench import BENCHES
from curvescope.commands.scale import PARTS as SCALE
from curvescope.experiments.factors import all_facts
from curvescope.parsers import Part
from curvescope.profiling.hardware import devices
from curvescope.profiling.hardware.occupancy import SOURCE, find_limits
from curvescope.profiling.readers import metrics

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from agent_pages import llms_page, skill_page  # noqa: E402
from document_schema import document_schema  # noqa: E402
from evidence_page import evidence_page  # noqa: E402
from h100_page import h100_page, h100_picture  # noqa: E402
from known_errors_page import known_errors_page  # noqa: E402
from schema_page import schema_page  # noqa: E402


def commands_page() -> str:
    """Every command with its arguments."""
    lines = [
        "# Commands",
        "",
        "Generated from the argument parsers; `curvescope COMMAND --help` prints the same. What "
        "several commands take alike is in [one table](#arguments-of-several-commands).",
        "",
        "Exit codes: 0 done; 1 a requested check failed; 2 bad input or an unusable machine, and "
        "the message says what to do; 130 interrupted. `record` passes on the code of what it ran.",
    ]
    commands: list[Part] = []
    for name, command in COMMANDS.items():
        commands += [command, *PARTS.get(name, {}).values()]
    parsers = [command.build()[0] for command in commands]
    counts = Counter(row for parser in parsers for row in _arguments(parser).items())
    shared: dict[str, str] = {}  # the commonest meaning of each spelling
    for (spelling, meaning), count in counts.most_common():
        if count >= SHARED_BY:
            shared.setdefault(spelling, meaning)
    for parser in parsers:
        lines += _command(parser, shared)
    lines += ["", "## Arguments of several commands", "", *_table(shared)]
    return "\n".join(lines) + "\n"


# The parts of commands that have some, e.g. `bench gemm`.
PARTS = {"bench": BENCHES, "scale": SCALE}
# commands that have an argument with the same meaning, from which on it is written once
SHARED_BY = 3


def _command(parser: argparse.ArgumentParser, shared: dict[str, str]) -> Iterator[str]:
    yield from ("", f"## {parser.prog}", "", (parser.description or "").strip())
    rows = _arguments(parser)
    own = {
        spelling: meaning for spelling, meaning in rows.items() if shared.get(spelling) != meaning
    }
    if own:
        yield from ("", *_table(own))
    if also := [spelling for spelling in rows if spelling not in own]:
        yield from ("", f"Also: {', '.join(also)}.")


def _arguments(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The spelling of each argument with its meaning."""
    return {
        _spelling(action): _cell((action.help or "") % {**vars(action), "prog": parser.prog})
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS
    }


def _table(rows: dict[str, str]) -> Iterator[str]:
    yield from ("| argument | meaning |", "|---|---|")
    yield from (f"| {spelling} | {meaning} |" for spelling, meaning in rows.items())


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return _code(value or action.dest)
    value = value or action.dest.upper()
    return ", ".join(
        _code(f"{option} {value}" if action.nargs != 0 else option)
        for option in action.option_strings
    )


_CARD_COLUMNS = {
    "SMs": ("sm_count", 1.0),
    "base MHz": ("base_clock_hz", 1e6),
    "boost MHz": ("boost_clock_hz", 1e6),
    "tensor MHz": ("tensor_clock_hz", 1e6),
    "DRAM GB/s": ("memory_bytes_per_s", 1e9),
    "L2 MB": ("l2_bytes", 1e6),
    "DRAM GB": ("memory_bytes", 1e9),
}


def devices_page() -> str:
    """Every GPU, each number with its source, and its peaks."""
    listed = devices.devices()
    sources = {fact.source: 0 for device in listed for fact in device.facts.values()}
    sources = {source: number for number, source in enumerate(sources, 1)}

    def cell(fact: devices.Fact | None, unit: float = 1.0) -> str:
        if fact is None:
            return ""
        return f"{fact.value / unit:,.5g} [{sources[fact.source]}{'' if fact.verified else '?'}]"

    lines = [
        "# Devices",
        "",
        "Generated from `profiling/hardware/devices*.toml`. A number in brackets is that of its "
        "source, below; `?` marks what nobody has looked up again. An empty cell: no source was "
        "found. `curvescope doctor --card NAME` prints one card with its sources.",
        "",
        "## Cards",
        "",
        f"| key | name | chip | capability | clock of long kernels | {' | '.join(_CARD_COLUMNS)} |",
        "|---|---|---|---|---|" + "--:|" * len(_CARD_COLUMNS),
    ]
    for device in listed:
        cells = (cell(device.facts.get(name), unit) for name, unit in _CARD_COLUMNS.values())
        named = (
            f"`{device.key}`",
            device.name,
            device.chip,
            device.compute_capability,
            device.running_clock,
        )
        lines.append(f"| {' | '.join((*named, *cells))} |")
    lines += [*_peaks(listed), *_units(listed, cell), "", "## Sources", ""]
    lines += [f"{number}. {_cell(source)}" for source, number in sources.items()]
    return "\n".join(lines) + "\n"


def _peaks(listed: tuple[devices.Device, ...]) -> Iterator[str]:
    """Peaks by precision."""
    yield from (
        "",
        "## Peaks",
        "",
        "TFLOP/s of products (TOP/s of int8) on dense operands, at the clock of long kernels: SMs "
        "x FMAs per SM and clock x 2 x clock. *t*: in tensor cores, with sums in fp32. Without "
        "them products of fp16, bf16 and TF32 run in fp32. A test compares the peaks with those "
        "that data sheets and TechPowerUp print (`published_*`).",
        "",
        f"| key | {' | '.join(devices.PEAK_PRECISIONS)} |",
        "|---|" + "--:|" * len(devices.PEAK_PRECISIONS),
    )
    for device in listed:
        cells = []
        for precision in devices.PEAK_PRECISIONS:
            peak = device.peak_products_per_s(precision)
            mark = (
                " *t*" if peak is not None and peak == device.tensor_flops_per_s(precision) else ""
            )
            cells.append("" if peak is None else f"{peak / 1e12:.4g}{mark}")
        yield f"| `{device.key}` | {' | '.join(cells)} |"


def _units(
    listed: tuple[devices.Device, ...], cell: Callable[[devices.Fact | None], str]
) -> Iterator[str]:
    """FMAs per SM and clock, and the limits of an SM, by compute capability and board."""
    yield from (
        "",
        "## SMs",
        "",
        "FMAs that an SM starts per clock, without and (*t*) with tensor cores, and its limits by "
        "compute capability. The first card of each is named; `l40` and `titan_rtx` have tensor "
        f"rates of their own. Limits: {_cell(SOURCE)}.",
        "",
    )
    kinds = [
        (precision, unit)
        for unit in ("lanes", "tensor_fmas")
        for precision in devices.PEAK_PRECISIONS
    ]
    seen = {(d.compute_capability, d.board == "geforce"): d for d in reversed(listed)}
    rows = {d.key: d for d in listed if d in seen.values()}
    used = [
        kind
        for kind in kinds
        if any(f"{kind[0]}_{kind[1]}_per_sm" in d.facts for d in rows.values())
    ]
    titles = [f"{precision}{' *t*' if unit == 'tensor_fmas' else ''}" for precision, unit in used]
    limits = ("registers", "warps", "blocks", "shared KiB", "of a block")
    yield f"| capability | e.g. | {' | '.join(titles)} | {' | '.join(limits)} |"
    yield "|---|---|" + "--:|" * (len(used) + len(limits))
    for key, device in rows.items():
        cells = [cell(device.facts.get(f"{precision}_{unit}_per_sm")) for precision, unit in used]
        sm = find_limits(device.compute_capability)
        if sm is not None:
            shared = (sm.shared_bytes // 1024, sm.shared_block_bytes // 1024)
            cells += [f"{number:,}" for number in (sm.registers, sm.warps, sm.blocks, *shared)]
        yield f"| {device.compute_capability} | `{key}` | {' | '.join(cells)} |"


def schema_file() -> str:
    """The JSON Schema of the documents, one definition a line."""
    schema = document_schema()
    types = schema.pop("$defs")
    lines = [
        f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in types.items()
    ]
    return json.dumps(schema)[:-1] + ', "$defs": {\n' + ",\n".join(lines) + "\n}}\n"


def documents_page() -> str:
    """Every document that `--json` prints, and every type in them."""
    schema = document_schema()
    types = schema["$defs"]
    kinds = [one["$ref"].rpartition("/")[2] for one in schema["oneOf"]]
    lines = [
        "# Documents of --json",
        "",
        "Generated from the types of the documents. Every command with `--json` prints one of "
        "these objects on one line of standard output, and everything else on standard error. Its "
        "first field, `schema`, names its kind and version. A field that is renamed, removed or "
        "gets another meaning makes the next version of all documents; new fields may come at any "
        "time. What is missing or unknown is null. Units stand in the names; a share is a fraction "
        "of 1. `?` behind a type: or null; `[]`: an array of it; `{}`: an object of it by name.",
        "",
        "The same as JSON Schema, draft 2020-12: [documents.schema.json](documents.schema.json). "
        "Shorter answers: [the server for agents](../index.md#python-agents-and-other-tools).",
        "",
        "| `schema` | what it is |",
        "|---|---|",
    ]
    for name in kinds:
        named = types[name]["properties"]["schema"]["const"]
        lines.append(f"| [`{named}`](#{name.lower()}) | {_cell(types[name]['description'])} |")
    for name in [*kinds, *(name for name in types if name not in kinds)]:
        definition = types[name]
        if "enum" in definition:
            words = ", ".join(_code(word) for word in definition["enum"])
            lines += ["", f"## {name}", "", definition["description"], "", f"One of {words}."]
            continue
        lines += [
            "",
            f"## {name}",
            "",
            definition["description"],
            "",
            "| field | type | meaning |",
            "|---|---|---|",
        ]
        for field, one in definition["properties"].items():
            if field == "schema":  # in the table above
                continue
            meaning = one.get("description", "").replace("; null if unknown.", ".")
            lines.append(f"| `{field}` | {_type(one)} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    """A type of the schema in words, with a link to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        kinds = [_type(one) for one in schema["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null") + "?" * ("null" in kinds)
    if "prefixItems" in schema:
        return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
    if "items" in schema:
        return f"{_type(schema['items'])}[]"
    if "additionalProperties" in schema:
        return f"{_type(schema['additionalProperties'])}{{}}"
    return str(schema.get("type", "any"))


def factors_page() -> str:
    """Every factor that an experiment can change, and how a user sets it."""
    lines = [
        "# Factors",
        "",
        "Generated from `experiments/factors/`. An experiment changes one factor at a time. A "
        "factor without an instruction is an experiment only.",
    ]
    for title, scope in (("On one term in isolation", "term"), ("On complete steps", "step")):
        lines += [
            "",
            f"## {title}",
            "",
            "| factor | what changes | what a user does | how |",
            "|---|---|---|---|",
        ]
        for name, one in all_facts(scope).items():
            remedy = (one.remedy or "").format(where="the layer" if scope == "term" else "the step")
            lines.append(
                f"| `{name}` | {_cell(one.what)} | {_cell(remedy)} | "
                f"{_cell(insert_names(one.how, ()) or '')} |"
            )
    return "\n".join([*lines, *_tested_causes(), *_feasible_on_a_gpu()]) + "\n"


def _tested_causes() -> Iterator[str]:
    """The experiment of each cause."""
    yield from ("", "## Which factors test a cause", "")
    yield from (
        "| cause | on a term in isolation | on complete steps | if the cause is right |",
        "|---|---|---|---|",
    )
    for cause, one in interventions().items():
        term, step = (", ".join(f"`{name}`" for name in names) for names in (one.term, one.step))
        expected = (
            f"not tested: {one.untested}"
            if one.untested
            else f"{one.expected[:1].lower()}{one.expected[1:-1]}"
        )
        yield f"| {cause} | {term} | {step} | {_cell(expected)} |"


def _feasible_on_a_gpu() -> Iterator[str]:
    """What confirms and what refutes each cause on a GPU, by simulation."""
    yield from (
        "",
        "## What the default time decides on a GPU",
        "",
        "Simulated, on no GPU: sweeps of an 80 GB H100, each with a cause at its own thresholds, "
        f"and the plan for {default_experiments_s('cuda'):.0f} s. Times are those that the plan "
        "expects, with starts of 6 s, until the cause is confirmed, or refuted where no factor "
        "changes anything (`tests/experiments/gpu_feasibility.py`).",
        "",
        "| cause | here | confirmed by | refuted by |",
        "|---|---|---|---|",
    )
    for row in json.loads(
        (DOCS.parent / "benchmarks" / "results" / "gpu_feasibility.json").read_text()
    ):
        worlds = (
            f"`{one['factor']}`, {'term alone' if one['scope'] == 'term' else 'complete steps'}, "
            f"{one['seconds']} s"
            for one in (row["confirmed"], row["refuted"])
        )
        yield f"| {row['cause']} | {row['at']} | {' | '.join(worlds)} |"


def metrics_page() -> str:
    """What fills the measured columns, tool by tool."""
    lines = [
        "# Metrics",
        "",
        "Generated from `profiling/readers/metrics.toml`: what metrics of nvprof and Nsight "
        "Compute fill the measured columns of `kernels`. A column is a sum of metrics, each times "
        "a factor; it is filled only where every metric was recorded. Of the entries of one column "
        "and part the first that can be filled is taken; parts add up.",
        "",
        "| column | part | tool | known on | sum of | source |",
        "|---|---|---|---|---|---|",
    ]
    for metric in metrics.metrics():
        terms = " + ".join(
            f"{factor:g} × `{name}`" if factor != 1 else f"`{name}`"
            for name, factor in metric.terms.items()
        )
        if metric.multiplied_by:
            terms = f"({terms}) × " + " × ".join(f"`{name}`" for name in metric.multiplied_by)
        lines.append(
            f"| `{metric.column}` | {metric.part} | {metric.tool} | {metric.generation} | {terms} "
            f"| {_cell(metric.source)} |"
        )
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


Pages = dict[Path, Callable[[], str]]
# What is generated and committed, by its path.
COMMITTED: Pages = {
    DOCS.parent / "curvescope" / "SKILL.md": skill_page,
    DOCS / "llms.txt": llms_page,
    DOCS / "case-studies" / "h100.md": h100_page,
    DOCS / "figures" / "case_h100.svg": h100_picture,
    DOCS / "internals" / "evidence.md": evidence_page,
    DOCS / "reference" / "documents.schema.json": schema_file,
}
# The pages that only the site has.
BUILT: Pages = {
    DOCS / "reference" / "commands.md": commands_page,
    DOCS / "reference" / "devices.md": devices_page,
    DOCS / "reference" / "documents.md": documents_page,
    DOCS / "reference" / "factors.md": factors_page,
    DOCS / "reference" / "known-errors.md": known_errors_page,
    DOCS / "reference" / "metrics.md": metrics_page,
    DOCS / "reference" / "schema.md": schema_page,
}


if __name__ == "__main__":
    for path, write in (COMMITTED | BUILT).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(write())
