"""The GPU campaign's questions to the collector get their answers, on the doubles of driver and
libcupti.
"""

import json
import os
from pathlib import Path

import pytest

from .doubles import HERE

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
_PROGRAM = """
import json
from fake_gpu import FakeGpu
gpu = FakeGpu()  # tells the double how large its records are
import checks

class Step:
    def time_step(self):
        with checks.CudaDriver().empty_kernel() as start:
            start()
        now = gpu.now()
        gpu.environment(0, 1, now, 1_500, 2_000)
        gpu.overhead(1 << 16, now, now + 700)
        return 0, 1

class OnDouble(checks.Context):
    def workload(self):
        step = Step()
        step.time_step()  # CUDA is initialised before the block, as by a network
        return step

asked = (
    checks.device_record, checks.environment_records, checks.collector_overhead, checks.clock_error, checks.many_threads
)
print(json.dumps({check.__name__: check(OnDouble("cuda:0", "double", 1)) for check in asked}))
"""  # noqa: E501


@pytest.mark.slow
def test_the_questions_to_the_collector_have_answers_on_the_double(run, on_doubles):
    answers = json.loads(
        run(_PROGRAM, **on_doubles, PYTHONPATH=os.pathsep.join([str(HERE), str(GPU)]))
    )
    assert answers["device_record"].startswith("yes: ")
    assert answers["environment_records"].startswith("30 samples; refused: None")
    assert answers["collector_overhead"].startswith(
        "{'cupti_buffer_flush': 35000} in "
    )  # ns: 50 steps of 700
    assert answers["clock_error"].startswith("none do; stated error ")
    assert answers["many_threads"] == "800 of 800 kernels; lost: {}"
