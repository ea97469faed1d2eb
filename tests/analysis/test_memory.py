"""Peak memory over batch sizes: planted rows whose sums are known, and measured peaks whose largest
is left out.
"""

import pytest

from curvescope.analysis.memory import explain_memory, largest_batch
from curvescope.analysis.render.memory import show_memory
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..curvescope.recordings import META, write_planted
from ..shared import PROFILES
from ..tables import ask_each

MB = 1_000_000


def write(path, sizes, **meta):
    """A recording whose step has `sizes[batch]`: MB by kind and layer."""
    rows = [
        {"batch": batch, "kind": kind, "layer": layer, "bytes": size * MB, "tensors": 1, "makes_peak": index == 0,  # noqa: E501
         "phase": "forward", "file": "model.py", "line": 7, "available_bytes": 1000 * MB}
        for batch, kinds in sizes.items()
        for index, ((kind, layer), size) in enumerate(kinds.items())
    ]  # fmt: skip
    with RecordingWriter(
        path, {**META, "batches": list(sizes), "layer_classes": {"fc": "Linear"}, **meta}
    ) as writer:
        writer.write("peaks", columns_of(rows))
    return open_recording(path)


def attention(batch):
    """A layer that needs 2 MB per sample beside 90 of parameters, and one that needs as much as the
    batch squared.
    """
    return {
        ("parameters", "fc"): 90,
        ("activations", "fc"): 2 * batch,
        ("activations", "attention"): batch**2,
    }


def test_a_layer_that_outgrows_the_batch_makes_the_bend(tmp_path):
    """M is 98, 114, 170 MB at 2, 4, 8... plus b²: the bend at 8 is 16² − 3·8² + 2·4² = 96 MB, all
    attention's.
    """
    found = explain_memory(
        write(tmp_path / "r", {batch: attention(batch) for batch in (2, 4, 8, 16)})
    )
    assert [point.time_ms.value for point in found.curve.points] == [98, 114, 170, 378]
    (bend,) = (one for one in found.findings if one.finding.tested.label == "bend at 8")
    assert bend.finding.verdict == "anomaly"
    assert bend.finding.tested_value.value == pytest.approx(96)
    assert (bend.shares[0].label, bend.shares[0].line) == ("attention activations", "model.py:7")
    for one in found.findings:
        assert sum(term.value.value for term in one.shares) == pytest.approx(
            one.finding.tested_value.value
        )


def test_memory_in_proportion_has_a_fixed_part_and_no_anomaly(tmp_path):
    """90 MB of parameters, and 2 MB of activations for each sample: 1,000 MB hold 455 samples."""
    sizes = {
        batch: {("parameters", "fc"): 90, ("activations", "fc"): 2 * batch} for batch in (2, 4, 8)
    }
    found = explain_memory(write(tmp_path / "r", sizes))
    assert not any(one.is_anomaly for one in found.findings)
    assert found.fixed_mb.value == pytest.approx(90)
    assert found.per_sample_mb == pytest.approx(2)
    assert found.largest_batch.batch == 455
    assert found.largest_batch.checked == pytest.approx(0, abs=1e-9)
    assert found.largest_batch.low < 455 < found.largest_batch.high


def test_what_the_step_does_not_use_and_cached_memory_stand_beside_it(tmp_path):
    sizes = {2: {("activations", "fc"): 4, ("not used in the step", None): 30, ("cached", None): 5}}
    found = explain_memory(write(tmp_path / "r", sizes))
    (peak,) = found.peaks
    assert (peak.kinds, peak.unused_mb, peak.cached_mb) == ({"activations": 4}, 30, 5)
    assert found.largest_batch is None  # one batch size says nothing of its growth


def test_outside_layers_a_term_is_of_an_operator_or_a_line(tmp_path):
    """The rows name no operator, as those of a memory snapshot."""
    found = explain_memory(
        write(tmp_path / "r", {2: {("activations", None): 4, ("parameters", None): 3}})
    )
    assert [term.label for term in found.peaks[0].terms] == ["model.py:7 activations", "parameters"]


def test_a_peak_of_an_unknown_batch_size_is_told_without_a_curve(tmp_path, capsys):
    run = write(tmp_path / "r", {None: {("activations", "fc"): 4}}, batches=None)
    show_memory(run)
    said = capsys.readouterr().out
    assert "A step of unknown batch needs 4.00 MB at its peak: activations 100%" in said
    assert "per sample" not in said


def test_memory_of_an_unknown_batch_size_beside_known_ones_is_no_curve(tmp_path):
    sizes = {None: {("activations", "fc"): 4}, 8: {("activations", "fc"): 8}}
    with pytest.raises(CurvescopeError, match="does not say the batch size; give it with --batch"):
        explain_memory(write(tmp_path / "r", sizes, batches=None))


def test_repeated_layers_are_one_term(tmp_path):
    sizes = {b: {("activations", f"h.{i}.fc"): b for i in range(12)} for b in (2, 4)}
    run = write(tmp_path / "r", sizes, layer_classes={f"h.{i}.fc": "Linear" for i in range(12)})
    (term,) = explain_memory(run).peaks[0].terms
    assert (term.label, term.value.value) == ("h.*.fc (Linear, 12 times) activations", 24)
    assert len(explain_memory(run, by_instance=True).peaks[0].terms) == 12


# MB by batch size, measured on a CPU; of attention by tokens. There and in AlexNet
# the peak moves to another place as the batch grows.
MEASURED = {
    "alexnet": {2: 496.690, 4: 503.240, 8: 516.991, 16: 548.996, 32: 613.164},
    "transformer": {2: 40.556, 4: 56.175, 8: 87.414, 16: 149.890, 32: 274.842},
    "lstm": {2: 8.080, 4: 12.225, 8: 20.557, 16: 37.227, 32: 70.581},
    "graph": {2: 4.650, 4: 9.258, 8: 18.474, 16: 36.906, 32: 73.770},
    "attention": {64: 3.495, 128: 5.330, 256: 9.589, 512: 21.342, 1024: 61.708, 2048: 205.363},
}


@ask_each("name", MEASURED)
def test_measured_peaks_are_predicted_from_smaller_ones(name):
    """A limit of exactly the peak at 32 holds batch 32: predictions from 2, 4, 8 and from 2 to 16
    have it.
    """
    batches = sorted(MEASURED[name])
    for known in range(3, len(batches)):
        sizes = {batch: MEASURED[name][batch] for batch in batches[:known]}
        for left_out in batches[known:]:
            found = largest_batch(sizes, MEASURED[name][left_out])
            assert found.low <= left_out <= found.high
            assert found.high < 2 * found.low


def test_the_margin_is_twice_the_error_of_the_largest_peak_for_each_doubling():
    """From 1 and 2 follow 30 at 4, measured are 33, 9.1 % more: no straight line.

    The parabola has 67 at 8.

    At 7 it has 57, with the margin 65; at 9 it has 78, without the margin 64.
    """
    found = largest_batch({1: 18, 2: 22, 4: 33}, 67)
    assert found.checked == pytest.approx(30 / 33 - 1)
    assert found.margin == pytest.approx(6 / 33)
    assert (found.low, found.batch, found.high) == (7, 8, 9)


def test_cached_memory_lowers_the_least_that_fits():
    """Half as much again is cached beside the peak: the allocator may find no use for
    its pieces.
    """
    sizes = {1: 10.0, 2: 20.0}
    assert largest_batch(sizes, 300).low > largest_batch(sizes, 300, cached_mb=10).low
    assert largest_batch(sizes, 300).batch == largest_batch(sizes, 300, cached_mb=10).batch == 30


def test_memory_that_does_not_grow_has_no_largest_batch():
    assert largest_batch({1: 20.0, 2: 20.0}, 300) is None


def test_the_page_says_what_fits_and_that_it_is_predicted(tmp_path, capsys):
    sizes = {
        batch: {("parameters", "fc"): 90, ("activations", "fc"): 2 * batch} for batch in (2, 4, 8)
    }
    unmeasured = [{"batch": 512, "round": 0, "why": "out of memory", "detail": "too large"}]
    show_memory(write(tmp_path / "r", sizes, unmeasured=unmeasured), limit_bytes=500 * MB)
    said = " ".join(capsys.readouterr().out.split())
    assert "A step of batch 8 needs 106 MB at its peak: parameters 85%, activations 15%" in said
    assert "It grows by 2.00 MB per sample beside 90.0 MB that batch does not change." in said
    assert "500 MB hold batch 205 (" in said
    assert (
        "): predicted; the largest peak, predicted from the smaller ones, is 0.0% off; batch 512 "
        "did run out" in said
    )
    assert "fc (Linear) parameters" in said


def test_explain_prints_the_same_as_a_document(tmp_path, document_of):
    write(tmp_path / "r", {batch: attention(batch) for batch in (2, 4, 8)})
    document = document_of("explain", tmp_path / "r", "--of", "memory", "--memory-limit", "2GB")
    assert document["schema"] == "curvescope.memory/1"
    assert document["peaks"][2]["kinds"] == {"parameters": 90, "activations": 80}
    assert document["largest_batch"]["limit_mb"] == 2000


@pytest.mark.slow
def test_traces_of_a_gpu_add_up_to_what_its_allocator_counted(tmp_path):
    """Three traces of one model on an A100; 852,020,224 and 13,155,807,744 are the largest
    `Total Allocated` in two.
    """
    traces = [str(PROFILES / f"parttrans_bs{batch}.pt.trace.json.gz") for batch in (32, 128, 512)]
    run = tmp_path / "run"
    assert main(["import", "--as", "sweep", "--batch", "32,128,512", *traces, "-o", str(run)]) == 0
    found = explain_memory(open_recording(run))
    assert found.curve.points[0].time_ms.value * MB == pytest.approx(852_020_224)
    assert found.curve.points[2].time_ms.value * MB == pytest.approx(13_155_807_744)
    assert found.peaks[2].terms[0].label == "aten::to activations"
    assert found.peaks[2].cached_mb > 0
    assert abs(found.largest_batch.checked) < 0.002  # of the peak at 512, predicted from 32 and 128
    assert found.largest_batch.limit_mb == pytest.approx(
        42_300, rel=0.01
    )  # all the memory of the card


def test_a_recording_without_allocations_says_how_to_get_them(tmp_path):
    run = open_recording(write_planted(tmp_path / "r"))
    with pytest.raises(
        CurvescopeError,
        match=r"has no allocations of a step: .* Record it with `curvescope diagnose --of memory`",
    ):
        explain_memory(run)
    with pytest.raises(CurvescopeError, match="--curvature throughput is of times"):
        explain_memory(run, "throughput")
