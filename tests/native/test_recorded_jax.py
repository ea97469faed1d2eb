"""A recording of a JAX program goes through every command: the calls of its compiled function are
steps, and what XLA marks is its layers.

JAX, the GPU and libcupti are test doubles; the program, its ranges and its processes are real.
"""

from textwrap import dedent

import pytest

JAX = """
    class Stage:
        def __init__(self, *arguments, **named): ...
        def __enter__(self):
            return self
        def __exit__(self, *raised): ...
    class profiler:
        TraceAnnotation = type("TraceAnnotation", (Stage,), {})
        StepTraceAnnotation = type("StepTraceAnnotation", (Stage,), {})
    def jit(function):
        return function
"""
# The first call compiles; a kernel then runs for the compiler, which times it.
TRAINING = """
    import threading, nvtx, jax
    gpu = FakeGpu()
    assert gpu.start() == 0
    gpu.device(0, "Test Double H100")
    me = threading.get_native_id()
    number = iter(range(1, 10_000))

    def run(name, duration_ns):
        now, correlation = gpu.now(), next(number)
        gpu.call(gpu.LAUNCH_KERNEL, now, now + 2_000, me, correlation)
        gpu.kernel(name, now + 3_000, now + 3_000 + duration_ns, correlation, stream=7)

    def marked(name):
        return nvtx.annotate(name, domain="TSL")

    compiled = []

    @jax.jit
    def update():
        if not compiled:
            compiled.append(True)
            with marked("XlaCompile:#module=jit_update#"):
                with marked("XlaModule:#hlo_module=cudnn-conv.6#"):
                    with marked("Thunk:#hlo_op=cudnn-conv.6#"):
                        run("conv", 900_000)
        with marked("XlaModule:#hlo_module=jit_update,program_id=7#"):
            for scope in ("jvp(conv1)", "transpose(jvp(conv1))"):
                with marked(f"Thunk:#name=jit(update)/{scope}/conv,hlo_op=cudnn-conv.6#"):
                    run("conv", 300_000)
            with marked("Thunk:#name=jit(update),hlo_op=loop_subtract_fusion#"):
                run("loop_subtract_fusion", 50_000)

    for _ in range(8):
        update()
    PROGRAM_ENDS
"""


MARKED_BY = "calls of a function of JAX or TensorFlow (update)"


@pytest.mark.slow
def test_calls_of_a_compiled_function_are_the_steps_of_a_recorded_program(record_fake, tmp_path):
    (tmp_path / "jax.py").write_text(dedent(JAX))
    code, recording = record_fake(TRAINING.replace("PROGRAM_ENDS", "pass"))
    assert (code, recording.meta["steps_from"]) == (0, MARKED_BY)
    kernels = recording.frame("kernels")
    # The function is known when it is called for the third time: its end begins the first step.
    assert list(kernels.groupby("step").size()) == [3] * 5
    in_steps = kernels[kernels["step"].notna()]
    places = set(zip(in_steps["layer"], in_steps["phase"].fillna(""), strict=True))
    assert places == {("conv1", "forward"), ("conv1", "backward"), ("jit_update", "")}
    assert set(kernels["layer"]) == {"conv1", "jit_update", "XLA compilation"}
    assert set(in_steps["op"]) == {"cudnn-conv.6", "loop_subtract_fusion"}


def test_a_program_that_leaves_at_once_has_its_steps(record_fake, tmp_path):
    (tmp_path / "jax.py").write_text(dedent(JAX))
    leaving = "import os; os._exit(0)"
    code, recording = record_fake(TRAINING.replace("PROGRAM_ENDS", leaving))
    assert (code, recording.meta["steps_from"]) == (0, MARKED_BY)
    assert len(recording.frame("steps")) == 5


def test_steps_that_a_program_marks_itself_come_first(record_fake, tmp_path):
    (tmp_path / "jax.py").write_text(dedent(JAX))
    own = """
    for turn in range(4):
        with nvtx.annotate(f"step {turn}"):
            update()
            update()
    """
    code, recording = record_fake(TRAINING.replace("PROGRAM_ENDS", "pass") + own)
    assert (code, recording.meta["steps_from"]) == (0, "marks")
    assert len(recording.frame("steps")) == 4
