"""The answer of one profile fits the screen of a terminal, and says of each of the three largest
reasons its bound, its place and the command that tests it.
"""

import re

import pytest

from curvescope.analysis.diagnosis.suggested import advise
from curvescope.analysis.render.advice_page import AdvicePage
from curvescope.analysis.render.page import LINES
from curvescope.base.numbers import number
from curvescope.experiments.factors import all_facts
from curvescope.profiling.recording.experiments import Scope
from curvescope.profiling.recording.store import open_recording

from ...shared import PROFILES
from ...tables import grade

SHOWN = sorted(
    path.name
    for path in PROFILES.iterdir()
    if re.search(r"\.(json|sqlite|sql|nvvp|xplane\.pb|ncu-rep|csv)(\.gz)?$", path.name)
)
WITHOUT_TIMES = (  # refused, in words of their own
    "averyclapp_metrics_long.csv",
    "hta_cupti_profiler_trace.json.gz",
    "hta_rank_non_gpu.json.gz",
    "magus_gtx950_convolutionFFT2D_metrics.csv.gz",
)
THREE = "kineto_resnet50_w0_a.pt.trace.json.gz"
QUICK = (THREE, "tl_vllm_decode.json.gz", "hta_alexnet_trace.json.gz")
TIMED = [name for name in SHOWN if name not in WITHOUT_TIMES]


@pytest.fixture
def page(imported_profile):
    """The page of a profile, 80 cells wide."""

    def make(name):
        recording = open_recording(imported_profile(name))
        found = advise(recording, all_facts(Scope.STEP, "cuda"))
        return AdvicePage(recording, "run", found)

    return make


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("name", grade(TIMED, quick=QUICK, in_ci=TIMED[::4]))
def test_the_page_fits_the_screen_and_names_each_bound_place_and_test(name, page):
    made = page(name)
    for width in (80, 120):
        check(made, lines_of(made, width), width)


def lines_of(made, width):
    return [line.plain.rstrip() for line in made.lines(width)]


def check(made, lines, width):
    assert len(lines) <= LINES
    commands = [line for line in lines if "curvescope " in line]
    assert all(len(line) <= width for line in lines if line not in commands)
    tested = "".join(line.split("curvescope")[0] for line in commands if "test " in line)
    for at, advised in enumerate(made.advice.advised[:3], 1):
        (line,) = (text for text in lines if text.startswith(f"{at}  "))
        assert f"{number(advised.suggestion.at_most_ms)} ms" in line
        assert str(at) in tested
        if advised.suggestion.where:
            below = lines[lines.index(line) + 1]
            assert advised.suggestion.where[:6] in below


def test_what_is_left_out_is_said_and_three_reasons_have_numbers(page):
    text = "\n".join(lines_of(page(THREE), 80))
    assert "WHAT TO DO" in text
    assert "1  Load batches ahead in worker processes" in text
    assert "waits for the next batch, in enumerate(DataLoader)" in text
    assert "test 1 and 3  curvescope diagnose --step FILE.py:make_step --batch 32" in text
    assert "test 2        curvescope compare run NEW" in text


def test_a_number_shows_one_reason_in_full(imported_profile, text_of, command, tmp_path):
    path = imported_profile(THREE)
    said = " ".join(text_of("explain", path, "1").split())
    assert said.startswith("1. A step waits for the next batch")
    assert "How: DataLoader(..., num_workers=N" in said
    done = command("explain", path, "9", cwd=tmp_path, code=2)
    assert f"Finding 9: {path} has findings 1 to 3." in done.stderr


def test_everything_has_each_gap_and_kind_of_kernel(imported_profile, text_of):
    said = text_of("explain", imported_profile(THREE), "--all")
    assert "longest gaps" in said
    assert "kernel family" in said
    assert "3. A step launches short kernels" in said
