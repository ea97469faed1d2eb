"""oneDNN primitives and MKL calls of this process, from the libraries' own verbose mode.

Both libraries print one line per call to C's standard output. oneDNN's line has its start (with
ONEDNN_VERBOSE_TIMESTAMP, in milliseconds of the system clock with a resolution of a quarter of a
microsecond) and its duration. MKL's line has only a duration; the call is attributed later by the
shapes of the operator around it (`collect.torch_step`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ...base.standard_output import redirect_output
from ..attribution.library_calls import MklCall, Primitive, VerboseLog

_NS_PER_UNIT = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# MKL_VERBOSE SGEMM(T,N,10,4,4096,0x7ff…,…) 157.55us CNR:OFF …
_MKL_CALL = re.compile(
    r"MKL_VERBOSE (?P<name>\w+)\((?P<arguments>[^)]*)\) (?P<time>[0-9.]+)(?P<unit>ns|us|ms|s)\b"
)


def parse(text: str) -> VerboseLog:
    """Parse verbose output. Lines of neither library are kept in `other`."""
    log = VerboseLog()
    for line in text.splitlines():
        if line.startswith(("onednn_verbose", "dnnl_verbose")):
            _parse_primitive(line, log)
        elif match := _MKL_CALL.match(line):
            log.mkl_calls.append(_mkl_call(match))
        elif line and not line.startswith("MKL_VERBOSE"):
            log.other.append(line)
    return log


def _parse_primitive(line: str, log: VerboseLog) -> None:
    # …[,version],[timestamp][,"primitive"],exec,ENGINE,PRIMITIVE,IMPLEMENTATION,PROP_KIND,…,MILLISECONDS  # noqa: E501
    fields = line.split(",")
    if "exec" not in fields:
        return  # banner, or creation of a primitive
    at = fields.index("exec")
    before = fields[1:at]
    primitive, implementation, prop_kind = fields[at + 2 : at + 5]
    start_ms = next((f for f in before if "." in f), None)
    if start_ms is None:
        log.untimed += 1
        return
    kind = "" if prop_kind == "undef" else f".{prop_kind}"
    duration_ns = round(float(fields[-1]) * 1e6)
    # The text has more digits than a float: whole and fractional milliseconds are parsed
    # separately.
    whole, fraction = start_ms.split(".")
    start_ns = int(whole) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    log.primitives.append(Primitive(f"{primitive}{kind} {implementation}", start_ns, duration_ns))


def _mkl_call(match: re.Match[str]) -> MklCall:
    arguments = match["arguments"].split(",")
    letters = [a for a in arguments[:2] if a.isalpha()]
    sizes = []
    for argument in arguments[len(letters) :]:
        if not argument.isdigit():
            break
        sizes.append(int(argument))
    name = f"mkl {match['name']}" + (f"({','.join(letters)})" if letters else "")
    return MklCall(name, tuple(sizes), round(float(match["time"]) * _NS_PER_UNIT[match["unit"]]))


@contextmanager
def capture(mkl: bool = True) -> Iterator[VerboseLog]:
    """Collect the verbose output of oneDNN and MKL in this process; the log is filled when the
    block ends.

    File descriptor 1 is a temporary file meanwhile; the program's output goes to standard error
    afterwards. A line costs MKL more than a small product, so `mkl` can leave it out: a step of an
    encoder took a seventh longer, one whose attention multiplies small blocks three times as long.
    """
    import torch

    log = VerboseLog()
    with redirect_output(sys.stdout, 1) as printed, ExitStack() as stack:
        if torch.backends.mkldnn.is_available():
            stack.enter_context(torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON))
        if mkl and torch.backends.mkl.is_available():
            stack.enter_context(torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON))
        yield log
    parsed = parse(b"".join(printed).decode(errors="replace"))
    log.__dict__.update(parsed.__dict__)
    for line in log.other:
        print(line, file=sys.stderr)
