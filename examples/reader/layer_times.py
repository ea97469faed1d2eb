"""A reader of text files whose first line is `layer times in ms` and whose others are
`LAYER KERNEL MILLISECONDS`.

curvescope import times.txt
"""

from curvescope import CurvescopeError

NAME = "layer times"
_HEAD = "layer times in ms"


def recognises(source):
    """Whether the file starts as ours do; `source.text` holds its first characters."""
    return source.text.startswith(_HEAD)


def read(source, writer, options):
    """One profiled step whose kernels run one after the other."""
    kernels, now_ns = [], 0
    for number, line in enumerate(source.read_all(1 << 26).decode().splitlines()[1:], 2):
        try:
            layer, name, milliseconds = line.split()
            duration_ns = round(float(milliseconds) * 1e6)
        except ValueError:
            raise CurvescopeError(
                f"line {number} is not LAYER KERNEL MILLISECONDS: {line!r}"
            ) from None
        row = {
            "layer": layer,
            "name": name,
            "start_ns": now_ns,
            "duration_ns": duration_ns,
            "step": 0,
        }
        kernels.append({**row, "source": "torch"})
        now_ns += duration_ns
    writer.write("kernels", {name: [row[name] for row in kernels] for name in kernels[0]})
    step = {
        "step": 0,
        "batch": options.batch,
        "round": 0,
        "index": 0,
        "start_ns": 0,
        "duration_ns": now_ns,
    }
    writer.write("steps", {name: [value] for name, value in {**step, "profiled": True}.items()})
