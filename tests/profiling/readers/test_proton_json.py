"""Tree files of Proton: those of Triton's own tests, and trees as it builds them for CUDA graphs
and Python frames.
"""

import json

import pytest

from curvescope.base.errors import CurvescopeError

from .made_profiles import PROFILES, imported, of_text, rows


def node(name, *children, **metrics):
    return {
        "frame": {"name": name, "type": "function"},
        "metrics": metrics,
        "children": list(children),
    }


def kernel(name, total_ns, count=1, **metrics):
    return node(
        name,
        **{
            "time (ns)": total_ns,
            "count": count,
            "device_id": "0",
            "device_type": "CUDA",
            **metrics,
        },
    )


def read(tree, folder):
    return of_text(json.dumps([tree, {}]), folder)


def places(recording):
    return rows(recording, "kernels", "name", "layer", "phase", "op", "duration_ns")


def test_a_file_of_tritons_tests_is_read(tmp_path):
    recording = imported(PROFILES / "proton_triton.json", tmp_path)
    assert places(recording) == [
        ("cuda_kernel", "scope", None, "__proton_launch_metadata", 4064),
        ("triton_kernel", "scope", None, None, 1664),
    ]
    assert recording.arrow("kernels")["bytes_compulsory"].to_pylist() == [None, 2]
    device = recording.meta["device"]
    assert (device["compute_capability"], device["sm_count"], device["clock_hz"]) == (
        "8.6",
        16,
        1_140_000_000,
    )
    assert device["memory_bytes_per_s"] == 2 * 5_501_000_000 * 128 // 8
    assert set(recording.meta["missing"]) == {"timeline", "steps"}


def test_work_is_of_a_launch_and_the_device_that_of_the_first_kernel(tmp_path):
    recording = imported(PROFILES / "proton_hip.json", tmp_path)
    work = [(1, 10**11, 10**8), (0, 10**10, 10**7)]
    assert rows(recording, "kernels", "device", "flops", "bytes_compulsory") == work
    assert recording.meta["device"]["compute_capability"] == "gfx942"


def test_kernels_of_a_graph_have_the_scopes_of_their_capture(tmp_path):
    captured = node("<captured_at>", node("layer:mlp", kernel("gemm", 700, 7)))
    tree = node("ROOT", node("decode", node("graph_launch", captured), kernel("sample", 5)))
    assert places(read(tree, tmp_path)) == [("gemm", "mlp", None, None, 100)] * 7 + [
        ("sample", "decode", None, None, 5)
    ]


def test_launches_have_the_mean_and_add_up_to_the_sum(tmp_path):
    recording = read(node("ROOT", node("forward", kernel("gemm", 1001, 3, flops16=3e6))), tmp_path)
    launches = [("forward", None, ns, 10**6) for ns in (334, 334, 333)]
    assert rows(recording, "kernels", "phase", "op", "duration_ns", "flops") == launches


def test_a_python_frame_is_an_operator_without_folders(tmp_path):
    tree = node(
        "ROOT",
        node("/home/me/code/train.py:main@9", node("/home/me/code/m.py:block@41", kernel("k", 10))),
    )
    assert places(read(tree, tmp_path)) == [("k", None, None, "block (m.py:41)", 10)]


def test_what_cannot_be_read_is_counted_or_refused(tmp_path):
    recording = read(
        node("ROOT", kernel("a", 10), kernel("b", "many"), kernel("c", 10, 0)), tmp_path
    )
    assert recording.meta["lost"]["rows_unreadable"]["count"] == 2
    for tree, words in (
        (node("ROOT", node("s")), "no kernel"),
        (node("ROOT", kernel("k", 9, 1 << 40)), "launches"),
    ):
        with pytest.raises(CurvescopeError, match=words):
            read(tree, tmp_path)
