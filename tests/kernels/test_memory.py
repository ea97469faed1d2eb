"""Memory, latency, peak and launch problems: work by hand, and checks that catch a wrong kernel;
memory levels.
"""

import numpy as np

from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import Launch
from curvescope.kernels.levels import cache_capacities, memory_levels
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.peak import Peak

from ..tables import ask_each


def test_a_stride_touches_fewer_elements_of_the_same_span():
    problem = Memory("copy", 2400, 3, "fp64")
    assert problem.elements == 50
    (b,) = problem.operands(np.random.default_rng(0))
    assert b.size == 150
    np.testing.assert_array_equal(problem.reference((b,)), b[::3])


@ask_each("kind", KINDS)
def test_the_right_result_is_accepted_and_one_wrong_element_is_not(kind):
    problem = Memory(kind, 4800)
    operands = problem.operands(np.random.default_rng(0))
    result = problem.reference(operands).astype(np.float32).astype(np.float64)
    assert problem.error(operands, result).acceptable
    result[-1] += 0.1
    assert not problem.error(operands, result).acceptable


def test_the_chase_visits_every_line_once():
    problem = Latency(64 * 50, loads=50 + 7)
    (buffer,) = problem.operands(np.random.default_rng(0))
    place, seen = 0, []
    for _ in range(50):
        seen.append(place)
        place = buffer[place]
    assert place == 0
    assert sorted(seen) == list(range(0, 400, 8))
    assert seen != sorted(seen)
    assert problem.error((buffer,), np.asarray([float(seen[7])])).acceptable
    assert not problem.error((buffer,), np.asarray([float(seen[8])])).acceptable
    assert problem.parts == (57, "load")


def test_fma_chains_converge_and_a_chain_that_stood_still_is_wrong():
    problem = Peak(16, "fp64", steps=3)
    (start,) = problem.operands(np.random.default_rng(0))
    end = start.copy()
    for _ in range(3):
        end = end * 0.5 + 0.5
    assert problem.error((start,), end).acceptable
    end[3] = start[3]
    assert not problem.error((start,), end).acceptable


def test_a_launch_adds_one():
    problem = Launch("graph")
    assert problem.error(problem.operands(np.random.default_rng(0)), np.ones(1)).acceptable
    assert not problem.error(problem.operands(np.random.default_rng(0)), np.zeros(1)).acceptable


def plant_caches(root, processors):
    """Processors with an L1 and an L2 of their own and one L3, as the kernel shows them."""
    everybody = f"0-{processors - 1}"
    for cpu in range(processors):
        caches = [("1", "Data", "32K", str(cpu)), ("1", "Instruction", "64K", str(cpu))]
        caches += [("2", "Unified", "1M", str(cpu)), ("3", "Unified", "8192K", everybody)]
        for index, (level, kind, size, shared) in enumerate(caches):
            folder = root / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", shared),
            ):
                (folder / name).write_text(text + "\n")


def test_capacities_add_up_over_processors_but_a_shared_cache_counts_once(tmp_path):
    plant_caches(tmp_path, 4)
    assert cache_capacities(4, tmp_path) == {"L1": 4 * 32 << 10, "L2": 4 << 20, "L3": 8 << 20}
    assert cache_capacities(1, tmp_path) == {"L1": 32 << 10, "L2": 1 << 20, "L3": 8 << 20}
    device = {"kind": "cpu", "threads": 4}
    assert memory_levels(device, cpus=tmp_path) == [
        ("L1", 64 << 10),
        ("L2", 2 << 20),
        # Half of the shared cache is not more than the L2s hold together: it cannot be
        # distinguished from them.
        ("DRAM", 16 << 20),
    ]
    assert [level.name for level in memory_levels(device, 1, tmp_path)] == [
        "L1",
        "L2",
        "L3",
        "DRAM",
    ]


@ask_each(
    ("l2_bytes", "memory_bytes", "expected"),
    [
        (60 << 20, 140 * 10**9, [("L2", 15 << 20), ("DRAM", 16 * (60 << 20))]),  # H200
        (2 << 20, 8 * 10**9, [("L2", 512 << 10), ("DRAM", 10**9)]),  # GTX 1080
        (1 << 20, 10**9, [("L2", 256 << 10), ("DRAM", 250_000_000)]),
        (None, 10**11, [("DRAM", 10**9)]),
    ],
)
def test_on_a_gpu_a_working_set_outlasts_its_launch_and_exceeds_the_l2(
    l2_bytes, memory_bytes, expected
):
    device = {"kind": "cuda", "l2_cache_bytes": l2_bytes, "memory_bytes": memory_bytes}
    assert memory_levels(device) == expected


def test_without_known_caches_there_is_dram(tmp_path):
    assert memory_levels({"kind": "cpu", "threads": 2}, cpus=tmp_path) == [("DRAM", 512_000_000)]
