"""What JAX's scopes and XLA's ranges say of kernels, on rows that a GPU left."""

import gzip
import json
from pathlib import Path

from curvescope.profiling.attribution.assemble import assemble
from curvescope.profiling.attribution.framework_scopes import COMPILATION
from curvescope.profiling.attribution.profile import Options, profile_of_tables, table_of_rows
from curvescope.profiling.attribution.range_names import RangeName, RangeNames
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ...tables import ask_each

DATA = Path(__file__).parents[2] / "data" / "h100" / "jax_program.json.gz"
SAID = {
    "XlaModule:#hlo_module=jit_update,program_id=9948#": RangeName("jit_update"),
    "XlaModule:#prefix=args[0],hlo_module=jit_squeeze,program_id=7#": RangeName("jit_squeeze"),
    # the compiler runs a kernel to time it
    "XlaModule:#hlo_module=cudnn-conv-bw-input.5#": RangeName(COMPILATION, True),
    "XlaCompile:#module=jit_update#": RangeName(COMPILATION, True),
    "XlaPass:#name=algsimp,module=jit_update,program_id=9948#": RangeName(COMPILATION, True),
    "Thunk:#name=jit(update)/jvp(conv1)/jit(relu)/max,hlo_op=loop_pad_fusion,unique_hlo_op_id=6#": (
        RangeName("conv1", True, "forward", op="loop_pad_fusion")
    ),
    "Thunk:#name=jit(update)/transpose(jvp(conv3))/conv,hlo_op=cudnn-conv-bw-filter.8#": RangeName(
        "conv3", True, "backward", op="cudnn-conv-bw-filter.8"
    ),
    "Thunk:#name=jit(update)/jvp(head),hlo_op=gemm_fusion_dot.1,unique_hlo_op_id=6#": RangeName(
        "head", True, "forward", op="gemm_fusion_dot.1"
    ),
    "Thunk:#name=jit(f)/block/dot[axes=(1, 0)]/dot_general,hlo_op=dot.1#": RangeName(
        "block/dot[axes=(1, 0)]", True, op="dot.1"
    ),
    # no scope: they lie in their module
    "Thunk:#name=jit(update),hlo_op=loop_select_fusion#": RangeName(op="loop_select_fusion"),
    "Thunk:#name=weights['conv1'],hlo_op=wrapped_transpose#": RangeName(op="wrapped_transpose"),
    "Thunk:#hlo_op=command_buffer_14#": RangeName(),  # it launches a graph of several
}


@ask_each("name", SAID)
def test_ranges_of_xla_are_instructions_in_scopes_functions_or_compiling(name):
    assert RangeNames().read(name, "TSL") == SAID[name]
    assert RangeNames().read(name).layer == name  # a program's own range of such a name


def recorded(folder):
    """The recording of the kernels, calls and ranges of the file."""
    rows = json.loads(gzip.decompress(DATA.read_bytes()))

    def timed(row, **columns):
        name, start, duration, _where, *_ = row
        return {
            "name": name,
            "start_ns": start,
            "end_ns": start + duration,
            "process": 1,
            **columns,
        }

    def on_host(row, **columns):
        return timed(row, thread=row[3], thread_key=row[3], **columns)

    ranges = table_of_rows([on_host(row, kind="push_pop") for row in rows["ranges"]])
    domain = table_of_rows([{"name": "TSL"} for _ in rows["ranges"]])["name"]
    tables = (
        ranges.append_column("domain", domain),
        table_of_rows([on_host(row, correlation_id=row[4]) for row in rows["calls"]]),
        table_of_rows(
            [timed(row, stream=row[3], device=0, correlation_id=row[4]) for row in rows["kernels"]]
        ),
        table_of_rows([]),
    )
    meta = dict.fromkeys(("network", "device", "batches", "protocol"))
    writer = RecordingWriter(folder, {"recording_type": "profile", **meta})
    assemble(profile_of_tables("cupti", *tables), writer, Options())
    writer.finish()
    return open_recording(folder)


def test_kernels_of_a_jax_program_have_the_layer_of_their_scope(tmp_path):
    kernels = recorded(tmp_path / "jax").frame("kernels")
    of_products = kernels[kernels["op"].astype(str).str.startswith("cudnn-conv")]
    run = of_products[of_products["layer"] != COMPILATION]
    kinds = run["op"].str.replace(r"\.\d+", "", regex=True)
    found = set(zip(run["layer"], run["phase"], kinds, strict=True))
    forward = {(f"conv{n}", "forward", "cudnn-conv") for n in (1, 2, 3)}
    backward = {(f"conv{n}", "backward", "cudnn-conv-bw-filter") for n in (1, 2, 3)}
    inputs = {(f"conv{n}", "backward", "cudnn-conv-bw-input") for n in (2, 3)}
    assert found == forward | backward | inputs
    assert set(kernels["layer"]) == {"conv1", "conv2", "conv3", "jit_update", COMPILATION}
    tuned = kernels[kernels["layer"] == COMPILATION]
    assert set(tuned["op"].dropna()) == {"cudnn-conv-bw-input.5"}
