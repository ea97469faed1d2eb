"""Writes layouts.json: sizes and field offsets of CUPTI's activity records, as the headers of each
toolkit have them.

    python generate.py TOOLKIT=INCLUDE[:INCLUDE...] ...

TOOLKIT is as in 12.9; the first INCLUDE holds cupti_activity.h, the others cuda.h and
crt/host_defines.h. Needs g++.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = {
    "kernel": "Kernel",
    "memcpy": "Memcpy",
    "memcpy_peer": "MemcpyPtoP",
    "memset": "Memset",
    "memory": "Memory",
    "api": "API",
    "synchronization": "Synchronization",
    "device": "Device",
    "context": "Context",
    "environment": "Environment",
    "overhead": "Overhead",
}


def structs_of(text: str, stem: str) -> list[str]:
    """Names of a kind's types in a header, oldest first."""
    names = re.findall(rf"^\}}\s*(CUpti_Activity{stem}\d*);", text, re.MULTILINE)
    if stem == "Memory":
        names = [name for name in names if name != "CUpti_ActivityMemory"]  # another kind's record
    return sorted(set(names), key=lambda name: int(re.sub(r"\D", "", name) or 1))


def fields_of(text: str, struct: str) -> list[str]:
    """Names of a type's own fields."""
    body = re.search(
        rf"typedef struct[^{{;]*\{{((?:(?!typedef struct).)*?)^\}}\s*{struct};",
        text,
        re.DOTALL | re.M,
    )
    assert body is not None, struct
    code = re.sub(r"/\*.*?\*/|//.*?$|^#.*?$", "", body[1], flags=re.DOTALL | re.MULTILINE)
    while "{" in code:  # what nested types hold counts as one field
        code = re.sub(r"\{[^{}]*\}", "", code)
    names = [re.search(r"(\w+)\s*(\[.*\])?$", part.strip()) for part in code.split(";")]
    return [
        name[1]
        for name in names
        if name is not None and not name[1].startswith(("pad", "reserved"))
    ]


def measure(includes: list[str]) -> tuple[int, dict[str, dict[str, object]], dict[str, str]]:
    """API version, every type of the kinds with its layout, and the newest type of each kind."""
    folder = Path(includes[0])
    current = (folder / "cupti_activity.h").read_text()
    old = folder / "cupti_activity_deprecated.h"
    text = current + (old.read_text() if old.exists() else "")
    lines, newest = [], {}
    for kind, stem in KINDS.items():
        newest[kind] = structs_of(current, stem)[-1]
        for struct in structs_of(text, stem):
            lines.append(f'std::printf("{struct} . %zu 0\\n", sizeof({struct}));')
            for field in fields_of(text, struct):
                place = f"offsetof({struct}, {field}), sizeof((({struct}*)0)->{field})"
                lines.append(f'std::printf("{struct} {field} %zu %zu\\n", {place});')
    program = (
        "#include <cupti_activity.h>\n#include <cupti_version.h>\n#include <cstddef>\n#include "
        "<cstdio>\n"
        'int main() { std::printf("%d\\n", CUPTI_API_VERSION);' + "\n".join(lines) + "}\n"
    )
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "layouts.cpp")
        source.write_text(program)
        options = [f"-I{include}" for include in includes]
        subprocess.run(["g++", "-w", *options, source, "-o", f"{place}/layouts"], check=True)
        version, *rows = subprocess.check_output(f"{place}/layouts", text=True).splitlines()
    structs: dict[str, dict[str, object]] = {}
    for row in rows:
        struct, field, first, second = row.split()
        if field == ".":
            structs[struct] = {"bytes": int(first), "fields": {}}
        else:
            structs[struct]["fields"][field] = [int(first), int(second)]
    return int(version), structs, newest


def main() -> None:
    """Measure every toolkit that was given."""
    toolkits, structs = {}, {}
    for argument in sys.argv[1:]:
        toolkit, _, includes = argument.partition("=")
        version, found, newest = measure(includes.split(":"))
        toolkits[toolkit] = {"api_version": version, "records": newest}
        for struct, layout in found.items():
            fields = layout["fields"]
            if struct in structs and structs[struct] != layout:
                # A toolkit may use up a struct's padding without renaming it: the larger set of
                # fields is the later.
                assert structs[struct]["bytes"] == layout["bytes"], struct
                fields = {**structs[struct]["fields"], **fields}
            structs[struct] = {"bytes": layout["bytes"], "fields": fields}
    result = {"toolkits": toolkits, "structs": structs}
    text = json.dumps(result, indent=1)
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)
    (Path(__file__).parent / "layouts.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
