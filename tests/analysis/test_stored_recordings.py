"""What is said of every recording and profile in the repository.

No rate, share or verdict stands without its base, estimates lie in their intervals, no share is
beyond 200 %, and no rate is above a roof without a mark.
"""

import json
import math
import re

import pytest

from curvescope.cli import main
from curvescope.commands import breakdown
from curvescope.profiling.attribution.kernel_precision import kernel_precision
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.store import open_recording

from ..shared import PROFILES, RECORDINGS, ROOT
from ..tables import grade

FILES = sorted(path for path in PROFILES.iterdir() if path.suffix not in (".md", ".py"))
SWEEP = ROOT / "sweep of three profiles"
RATES = {
    "gflop_per_s": "flops_time_share",
    "gb_per_s": "bytes_time_share",
    "measured_gb_per_s": "measured_time_share",
    "tensor_pipe_use": "tensor_time_share",
}
WIDEST = 200  # columns of a table that is piped
EVERY = [*RECORDINGS, SWEEP, *FILES]
QUICK = (
    ROOT / "tests" / "data" / "causes" / "WaitsForItsInput",
    PROFILES / "hta_triton_example.json.gz",
)
ROWS = grade(EVERY, quick=QUICK, in_ci=EVERY[::8])


@pytest.fixture(scope="module", params=ROWS, ids=lambda path: path.name[:30])
def recording(request, tmp_path_factory, imported_profile):
    """A stored recording, or a stored profile after its import, with a batch size where it takes
    one.
    """
    if request.param in RECORDINGS:
        return request.param
    folder = tmp_path_factory.mktemp("imported") / "recording"
    files, options = [request.param], ["--batch", "8"]
    if request.param == SWEEP:
        files = [path for path in FILES if path.name.startswith("parttrans")]
        options = ["--as", "sweep", "--batch", "128,32,512"]
    # Without advice, which `explain` prints below.
    if main(["import", "--json", *options, *map(str, files), "-o", str(folder)]):
        return imported_profile(request.param.name)
    return folder


def once(analyse):
    """The analysis, whose result the second output of a command takes over from the first."""
    results = []

    def analyse_once(*arguments, **options):
        if not results:
            results.append(analyse(*arguments, **options))
        return results[0]

    return analyse_once


@pytest.fixture
def shown(recording, capsys, monkeypatch):
    """What a command prints of it, as JSON and as text with every row; None where it refuses the
    recording.
    """

    monkeypatch.delenv("COLUMNS", raising=False)  # nor does a pipe have a width
    monkeypatch.setattr(breakdown, "read", once(breakdown.read))

    def run(command, *options):
        printed = []
        for more in ("--json", "--all"):
            capsys.readouterr()
            status = main([command, str(recording), *options, more])
            assert status in (0, 2)
            printed.append(capsys.readouterr().out if status == 0 else None)
        document, text = printed
        assert (document is None) == (text is None)
        if text is None:
            return None, None
        # No line but a command to copy is wider than the widest table.
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("curvescope ")]
        assert max(map(len, lines)) <= WIDEST
        return json.loads(document), text

    return run


def check_marks(recording, by, rows, text):
    """Hold the roofs that each row, with its rates by roof, exceeds against what it says and what
    is marked.
    """
    hardware, above = hardware_of(open_recording(recording).meta), 0
    computes = [
        roof.per_s
        for roof in (*hardware.roofs, *hardware.other_precisions)
        if roof.level == "compute"
    ]
    dram = hardware.roof("DRAM")
    for row, rates in rows:
        marked = set(row["exceeded_roofs"])
        size = rates.get("DRAM") or 0.0
        assert ("DRAM" in marked) == (dram is not None and size > dram.per_s), row
        named = kernel_precision(row["label"]) if by == "kernel" else "unknown"
        if named != "unknown":  # a kernel's name can say its precision
            roof = hardware.roof("compute", named)
            lowest = highest = math.inf if roof is None else roof.per_s
        else:  # the kernels of a row may have several precisions, and those of a recording may be unknown  # noqa: E501
            lowest, highest = min(computes, default=math.inf), max(computes, default=math.inf)
        flops = rates.get("compute") or 0.0
        assert "compute" in marked or flops <= highest, row
        assert "compute" not in marked or flops > lowest, row
        above += len(marked)
    assert len(re.findall(r"\d†", text)) == above
    assert ("† above the roof" in text) == (above > 0)


@pytest.mark.first_rows(3)
@pytest.mark.parametrize("by", ["layer", "kernel", "op"])
def test_a_rate_of_a_breakdown_says_of_which_share_of_the_time_it_is(recording, shown, by):
    found, text = shown("breakdown", "--by", by)
    if found is None:
        return
    for row in found["rows"]:
        for rate, over in RATES.items():
            assert (row[rate] is None) == (row[over] is None), (row["label"], rate)
            assert row[over] is None or 0 < row[over] <= 1 + 1e-9, (row["label"], over)
    assert math.isclose(
        math.fsum(row["time_ms"] for row in found["rows"]), found["time_ms"], rel_tol=1e-6
    )
    if found["idle"]:
        idle = ("idle", "waiting for input")
        idle_ms = math.fsum(row["time_ms"] for row in found["rows"] if row["label"] in idle)
        assert math.isclose(
            math.fsum(one["time_ms"] for one in found["idle"]), idle_ms, rel_tol=1e-9
        )
    assert found["n_used"] <= found["n_profiled"]
    words = " ".join(text.split())
    if found["unit"] != "step":
        assert "A step" not in words
        assert "\nstep " not in text
    if found["n_used"] < found["n_profiled"]:
        assert f"{found['n_used']} of {found['n_profiled']} profiled steps" in words
    assert len(found["busy_ms"]) != 1
    assert ("GPUs together" in words) == bool(found["busy_ms"])
    if found["work"] == "operator":
        assert "no kernel runs" not in words
    giga = {"compute": "gflop_per_s", "DRAM": "gb_per_s"}
    rows = [
        (row, {roof: 1e9 * (row[rate] or 0) for roof, rate in giga.items()})
        for row in found["rows"]
    ]
    check_marks(recording, by, rows, text)


@pytest.mark.first_rows(1)
def test_a_rate_of_a_roofline_above_its_roof_is_marked(recording, shown):
    found, text = shown("roofline")
    if found is None:
        return
    rows = [
        (
            point,
            {
                "compute": point["flops_per_s"],
                **{one["level"]: one["bytes_per_s"] for one in point["levels"]},
            },
        )
        for point in found["points"]
    ]
    check_marks(recording, found["by"], rows, text)


def estimates(node, path=""):
    """Every object with a value and an interval, with its place in the document."""
    if isinstance(node, dict):
        if isinstance(node.get("value"), float) and {"low", "high"} <= node.keys():
            yield path, node["value"], node["low"], node["high"]
        for name, child in node.items():
            yield from estimates(child, f"{path}.{name}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from estimates(child, f"{path}[{index}]")


def check_advice(found, text):
    """What one profile suggests is not said to be tried, and saves no more than the whole time,
    largest first.
    """
    for one in found["suggested"]:
        assert one["verdict"] == "untested", one
        assert 0 < one["at_most_ms"] <= found["time_ms"] * (1 + 1e-9), one
        assert math.isclose(one["at_most_share"], one["at_most_ms"] / found["time_ms"]), one
    bounds = [one["at_most_ms"] for one in found["suggested"]]
    assert bounds == sorted(bounds, reverse=True)
    lengths = [gap["time_ms"] for gap in found["gaps"]]
    assert lengths == sorted(lengths, reverse=True)
    for word in ("confirmed", "refuted", "noise"):
        assert word not in text, word


@pytest.mark.first_rows(1)
def test_a_verdict_has_an_interval_that_holds_it_and_a_spread_more_than_one_step(recording, shown):
    found, text = shown("explain")
    if found is None:
        return
    listed = list(estimates(found))
    of_a_curve = recording in RECORDINGS and not found["schema"].startswith("curvescope.advice/")
    assert len(listed) >= 10 or not of_a_curve
    for place, value, low, high in listed:
        assert low is None or low <= value, place
        assert high is None or value <= high, place
    if found["schema"] == "curvescope.advice/1":
        check_advice(found, text)
        return
    if found["schema"] == "curvescope.times/1":  # a table of times has curves and no steps
        return
    for point in found["curve"]:
        if point["n"] == 1:
            assert (point["spread"], point["stable"], point["time_ms"]["low"]) == (None, None, None)
    for finding in found["findings"]:
        assert (finding["tested_value"]["low"] is None) == (finding["verdict"] == "unknown"), (
            finding
        )
    for split in [*found["anomalies"], *filter(None, [found["fixed_cost"]])]:
        assert split["value"]["low"] is not None
    for row in found["remedies"]["rows"]:
        assert all(one["share"]["low"] is not None for one in row["saves"]), row
    # terms and causes are indented
    tables = [line for line in text.splitlines() if re.match(r" {2}\S", line)]
    shares = [int(share) for line in tables for share in re.findall(r" (-?\d+)%", line)]
    assert all(abs(share) <= 200 for share in shares), max(shares, key=abs)
    # `N ms of +M ms (confirmed, LOW to HIGH ms)` is only said of an N between LOW and HIGH.
    form = re.compile(r"([\d.]+) ms of \+?[\d.]+ ms.*\(confirmed, ([\d.]+) to ([\d.]+) ms")
    for amount, low, high in form.findall(" ".join(text.split())):
        assert float(low) <= float(amount) <= float(high)
    if found["unit"] != "step":
        assert not found["findings"]
        assert found["batch_size"] is None
        for word in ("step ms", "samples/s", "noise", "a step of", "No anomaly"):
            assert word not in text, word


def test_a_table_of_times_has_no_precision_or_version_that_nobody_recorded(recording, document_of):
    meta = json.loads((recording / "recording.json").read_text())
    for cell in document_of("compare", "--steps", recording)["times"]:
        assert "?" not in cell["framework"]
        assert "None" not in (cell["network"], cell["mode"])
        assert cell["precision"] == meta.get("precision", cell["precision"])
        if "imported_from" in meta:
            assert cell["precision"] is None
        assert cell["time_ms"] is not None or cell["empty"] in ("only profiled", "not measured yet")
