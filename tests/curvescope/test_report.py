"""`curvescope report`: what is in the page, and how it behaves in a browser."""

import base64
import hashlib
import html
import json
import re
import shutil
from itertools import pairwise

import pytest

from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.render.explained import CurvePoint, ExplainDocument
from curvescope.analysis.render.html import json_block, render_html
from curvescope.analysis.render.remedies import RemedyTable
from curvescope.base import numbers
from curvescope.cli import main

from ..analysis.planted_energy import write_energy
from ..browser import Page, find_chromium, needs_browser
from ..shared import PROFILES, shared_folder
from ..tables import ask_each
from .recordings import write_planted

HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><b>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of two recordings; one kernel, its layer and the network carry markup."""
    return shared_folder(tmp_path_factory, "report", write_report) / "report.html"


def write_report(folder):
    def hostile(steps, kernels):
        kernels.loc[kernels["layer"] == "conv1", ["name", "layer"]] = [
            HOSTILE,
            "<svg onload=alert(1)>",
        ]

    write_planted(folder / "first", "algorithm switch", change=hostile, network="<i>net</i>")
    write_planted(folder / "second", "roof change", seed=2)
    assert (
        main(
            [
                "report",
                str(folder / "first"),
                str(folder / "second"),
                "-o",
                str(folder / "report.html"),
            ]
        )
        == 0
    )


def reported(path):
    """What the page of one recording has of it, in r.html beside the recording."""
    assert main(["report", str(path), "-o", str(path.parent / "r.html")]) == 0
    return embedded(path.parent / "r.html")["runs"][0]


def embedded(path):
    block = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL
    )
    return json.loads(block[1])


def test_the_page_holds_the_document_of_explain(page, document_of):
    first = embedded(page)["runs"][0]
    explained = document_of("explain", page.parent / "first")
    assert first["explain"] == {
        name: value for name, value in explained.items() if name != "schema"
    }
    assert explained["anomalies"][0]["attribution"]["causes"][0]["cause"] == "algorithm switch"
    assert explained["headline"].startswith("<i>net</i>: conv3 backward costs")
    assert first["lead"] == explained["answers"][0]["sentence"]
    assert "algorithm switch from" in first["lead"]
    assert "(untested)" in first["lead"]


def test_kernels_of_the_table_and_bars_of_the_icicle_add_up_to_the_profiled_step(page):
    first = embedded(page)["runs"][0]
    kernels, times = first["kernels"], first["steps"]
    batch, ms, profiled = map(times["columns"].index, ("batch", "ms", "profiled"))
    for place, size in enumerate(kernels["batches"]):
        steps = [row[ms] for row in times["rows"] if row[batch] == size and row[profiled]]
        listed = sum(row["ms"][place] or 0 for row in kernels["rows"])
        bars = listed + kernels["more_ms"][place] + kernels["idle_ms"][place]
        # the rows are all profiled steps, the bars those that a diagnosis averages
        assert bars == pytest.approx(sum(steps) / len(steps), rel=5e-3)


def test_verdicts_and_curves_read_without_the_script(page):
    """Everything before the script: the sentence of the terminal, what to do, and the curve as a
    table.
    """
    text = page.read_text().partition("<script")[0]
    assert text.count('<article class="verdict"') == 2
    lead = embedded(page)["runs"][0]["lead"]
    assert html.escape(lead) in text
    table = text[text.index("<noscript>") : text.index("</noscript>")]
    assert [int(batch) for batch in re.findall(r"<tr><td>(\d+)</td>", table)] == [4, 8, 16]


def test_a_page_of_two_recordings_begins_with_which_is_faster(page):
    text = page.read_text().partition("<article")[0]
    assert re.search(
        r'<a href="#compare">(second is (faster|slower) than first|No step time of second differs)',
        text,
    )


def test_the_policy_of_a_page_lets_its_own_script_run(page):
    """A page that was changed after it was written has another digest: its script would not run."""
    text = page.read_text()
    (script,) = re.findall(r"<script>(.*)</script>", text, re.DOTALL)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text


def test_names_of_a_trace_are_never_markup(page):
    text = page.read_text()
    assert HOSTILE not in text
    assert "<svg onload" not in text
    assert '<p class="over">&lt;i&gt;net&lt;/i&gt;' in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_the_first_screen_says_what_the_terminal_does(page, text_of):
    """The verdict, the size to take, what was found with its worth, and how far each size is off
    the cost line.
    """
    first = embedded(page)["runs"][0]
    screen, printed = first["first"], text_of("explain", page.parent / "first")
    assert f"<h1>{html.escape(screen['verdict'])}</h1>" in page.read_text()
    assert screen["verdict"].split(".")[0] in " ".join(printed.split())
    assert [tile["name"] for tile in screen["tiles"]] == ["Batch size", "Cost of a step"]
    assert f"Take {screen['tiles'][0]['answer']}" in printed
    for found in screen["found"]:
        assert found["sure"] in printed
    fixed_ms, each_ms = screen["line_ms"]
    times_ms = {point["batch"]: point["time_ms"]["value"] for point in first["explain"]["curve"]}
    assert fixed_ms + each_ms * max(times_ms) == pytest.approx(times_ms[max(times_ms)], rel=0.5)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [400, 1200])
def test_the_first_screen_draws_the_curve_off_its_line(page, width):
    with Page(page, width=width) as opened:
        circles = opened.evaluate("document.querySelectorAll('#charts-0 svg circle').length")
        assert circles == len(embedded(page)["runs"][0]["explain"]["curve"])
        assert opened.evaluate("document.querySelector('#charts-0 h2').textContent").startswith(
            "Step time"
        )
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.problems == []


@ask_each("text", ["</script>", "<!--", "\u2028", "&amp;", "é"])
def test_json_in_the_page_holds_no_markup_and_reads_back(text):
    block = json_block({"name": text})
    assert not set(block) & set("<>&\u2028\u2029")
    assert json.loads(block) == {"name": text}


def test_an_existing_file_is_kept_unless_forced(page, refusal_of):
    command = ["report", str(page.parent / "first"), "-o", str(page)]
    assert "--force" in refusal_of(*command)


def test_what_has_no_steps_is_refused_and_a_table_of_times_with_what_reads_it(tmp_path, refusal_of):
    write_planted(tmp_path / "empty", keep=lambda steps: steps.iloc[:0])
    assert "has no step" in refusal_of("report", tmp_path / "empty", "-o", tmp_path / "r.html")
    (tmp_path / "times.csv").write_text("problem,batch,time_ms\na,1,2\nb,1,3\n")
    assert main(["import", str(tmp_path / "times.csv"), "-o", str(tmp_path / "table")]) == 0
    assert "curvescope explain" in refusal_of(
        "report", tmp_path / "table", "-o", tmp_path / "r.html"
    )


@pytest.mark.slow
def test_a_profile_whose_every_step_was_profiled_has_a_report(tmp_path, capsys):
    write_planted(tmp_path / "run", "algorithm switch", keep=lambda steps: steps[steps["profiled"]])
    run = reported(tmp_path / "run")
    assert any("Every step was profiled" in text for text in run["caveats"])
    assert run["explain"]["anomalies"][0]["attribution"]["causes"][0]["cause"] == "algorithm switch"


@pytest.mark.slow
def test_steps_without_a_kernel_have_a_report_without_a_roofline(tmp_path, capsys):
    """As ranges recorded around a program without a GPU: the roofline's refusal used to be the
    report's.
    """
    write_planted(tmp_path / "run", network=None, mode=None, protocol=None)
    shutil.rmtree(tmp_path / "run" / "kernels")
    run = reported(tmp_path / "run")
    assert run["roofline"] is None
    assert run["explain"]["curve"]
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "run")]) == 0
    # What the recording does not tell is left out.
    assert capsys.readouterr().out.splitlines()[0] == "run, GeForce GTX 1080"


@needs_browser
@pytest.mark.first_rows(1)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_opens_without_complaints_or_requests(page, dark):
    with Page(page, dark=dark) as opened:
        opened.settle()
        assert opened.problems == []
        assert opened.requests == [f"file://{page}"]
        titles = opened.evaluate(
            "[...document.querySelectorAll('section h2')].filter(e => e.checkVisibility()).map(e "
            "=> e.textContent)"
        )
        assert titles[:2] == ["Answers", "Cost over batch size"]
        assert {"Causes", "The step in time", "Kernels", "Comparison", "Recording"} <= set(titles)
        background = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(20, 21, 24)" if dark else "rgb(251, 250, 248)")
        opened.evaluate("document.getElementById('theme').click()")
        assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != background


@pytest.mark.slow
@needs_browser
def test_it_sorts_filters_hovers_and_goes_by_keyboard(page):
    with Page(page) as opened:
        names = (
            "[...document.querySelectorAll('#kernel-table tbody td.name')].map(e => e.textContent)"
        )
        times = (
            "[...document.querySelectorAll('#kernel-table tbody tr')]"
            ".map(r => parseFloat(r.cells[5].textContent) || 0)"
        )
        by_time = opened.evaluate(times)
        assert by_time == sorted(by_time, reverse=True)
        opened.evaluate("document.querySelector('#kernel-table thead button').click()")
        assert opened.evaluate("document.querySelector('#kernel-table th').ariaSort") == "ascending"
        listed = opened.evaluate(names)
        assert listed == sorted(listed, key=str.lower)
        opened.evaluate("document.getElementById('filter').focus()")
        for letter in "dgrad":
            opened.press(letter)
        assert opened.evaluate(names) == ["dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>"]
        # Scrolling into view may still go on, and hides the tip: the pointer comes back until it
        # shows.
        while opened.evaluate("document.getElementById('tip').hidden"):
            opened.hover("#curve circle.alarm")
        assert opened.evaluate("document.getElementById('tip').textContent").startswith("batch 16")
        opened.press("Escape")
        assert opened.evaluate("document.getElementById('tip').hidden")
        opened.evaluate("document.querySelector('#timeline canvas').focus()")
        before = opened.evaluate("document.querySelector('#timeline canvas').toDataURL()")
        opened.press("+")
        assert opened.evaluate("document.querySelector('#timeline canvas').toDataURL()") != before
        opened.evaluate("document.querySelectorAll('#runs button')[1].click()")
        assert "planted" in opened.evaluate(
            "document.querySelector('.verdict:not([hidden]) .over').textContent"
        )
        assert opened.evaluate("!!document.getElementById('roofline')")
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_the_icicle_is_enlarged_by_keyboard_and_links_to_its_rows(page):
    with Page(page) as opened:
        marks = "document.querySelectorAll('#icicle [role=img]')"
        assert opened.evaluate(f"[...{marks}].filter(e => e.tabIndex === 0).length") == 1
        opened.evaluate("document.querySelector('#icicle [role=img]').focus()")
        opened.press("ArrowDown")
        label = opened.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.startswith("layer ")
        whole = opened.evaluate(f"{marks}.length")
        opened.press("Enter")
        assert opened.evaluate(f"{marks}.length") < whole
        name = label.removeprefix("layer ").partition("\n")[0]
        assert opened.evaluate(
            "document.querySelector('#icicle [role=status]').textContent"
        ).startswith(f"the step › {name}")
        opened.evaluate("document.querySelector('#icicle a.rows').click()")
        opened.settle()
        listed = opened.evaluate(
            "[...document.querySelectorAll('#kernel-table tbody tr')].map(r => "
            "r.cells[2].textContent)"
        )
        assert set(listed) == {name}
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_a_difference_of_recordings_is_the_difference_of_their_steps(page):
    runs = embedded(page)["runs"]
    with Page(page) as opened:
        told = opened.evaluate(
            "document.querySelector('#icicle [role=img]').getAttribute('aria-label')"
        )
    place = runs[0]["kernels"]["batches"].index(embedded(page)["comparison"]["batch"])
    first, second = (
        sum(row["ms"][place] or 0 for row in run["kernels"]["rows"])
        + run["kernels"]["idle_ms"][place]
        for run in runs
    )
    assert f"{numbers.with_sign(first - second)} ms".replace("-", "−") in told


@pytest.mark.slow
@needs_browser
def test_marks_and_numbers_lead_to_their_rows(page):
    """A point of the curve to its steps, a bar and a cell to the kernels of their layer."""
    first = embedded(page)["runs"][0]
    with Page(page) as opened:

        def follow(selector, table):
            opened.evaluate(
                "location.hash = "
                f"document.querySelector({json.dumps(selector)}).getAttribute('href')"
            )
            opened.settle()
            return opened.evaluate(
                f"[...document.querySelectorAll('#{table} tbody tr')].map(r => [...r.cells].map(c "
                "=> c.textContent))"
            )

        steps = follow("#curve svg a", "steps")
        explained = first["explain"]
        batch, profiled = explained["curve"][0]["batch"], str(explained["profiled"]).lower()
        assert len(steps) == sum(
            row[1] == batch and str(row[4]).lower() == profiled for row in first["steps"]["rows"]
        )
        (anomaly,) = explained["anomalies"]
        layer = anomaly["shares"][0]["key"]["layer"]
        kernels = follow("#terms svg a", "kernel-table")
        assert kernels
        assert {cells[2] for cells in kernels} == {layer}
        assert opened.evaluate("document.querySelector('#kernels select').value") == str(
            anomaly["functional"]["to"]
        )
        opened.evaluate("document.querySelector('#kernels .chip').click()")
        assert opened.problems == []


def test_a_profile_of_one_batch_size_says_where_its_step_goes(tmp_path):
    """Without a curve there is no anomaly to answer on: the sentence names idle, layer
    and kernel.
    """
    write_planted(
        tmp_path / "run", keep=lambda steps: steps[steps["profiled"] & (steps["batch"] == 16)]
    )
    run = reported(tmp_path / "run")
    kernels = run["kernels"]
    longest = max(kernels["rows"], key=lambda row: row["ms"][0])
    assert re.fullmatch(
        r"Batch 16: (.* idle: .*; )?the longest layer is .+ with [0-9.]+ ms \(\d+%\); .+ is the longest "
        r"kernel .*",
        run["lead"],
    )
    assert longest["short"].partition("<")[0] in run["lead"]


@pytest.mark.slow
@needs_browser
def test_two_steps_are_aligned_at_a_layer(page):
    with Page(page) as opened:
        opened.settle()
        labels = opened.evaluate(
            "[...document.querySelectorAll('#timeline .tools label')].map(e => "
            "e.firstChild.textContent)"
        )
        assert labels == ["step of", "beside", "aligned at"]
        drawn = "document.querySelector('#timeline canvas').toDataURL()"
        before = opened.evaluate(drawn)
        select = "document.querySelector('#timeline label:nth-of-type(3) select')"
        opened.evaluate(
            f"{select}.selectedIndex = {select}.options.length - 1; {select}.dispatchEvent(new "
            "Event('change'))"
        )
        assert opened.evaluate(drawn) != before
        assert "aligned where" in opened.evaluate(
            "document.getElementById('timeline-about').textContent"
        )
        lanes = opened.evaluate(
            "[...document.querySelectorAll('#timeline tbody th')].map(e => e.textContent)"
        )
        assert lanes.count("layers") == 2
        assert opened.problems == []


@pytest.mark.slow
def test_energy_lies_beside_time_and_the_clock_among_the_facts(tmp_path):
    write_energy(tmp_path / "run", lambda batch: 300 if batch == 16 else 200)
    run = reported(tmp_path / "run")
    assert [round(point["power_w"]) for point in run["energy"]["curve"]] == [200, 200, 300]
    assert ["clocks", "clocks not locked"] in run["facts"]
    assert run["steps"]["columns"][-1] == "J"
    if find_chromium():
        with Page(tmp_path / "r.html") as opened:
            opened.settle()
            shown = opened.evaluate("document.getElementById('curve').textContent")
            assert "200 W" in shown
            assert re.search(r"excess 8→16: \+.* by power \+16", shown)
            assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_every_precision_has_its_roof(tmp_path):
    document = many_kernels(3)
    memory = {"level": "DRAM", "per_s": 3.35e12, "kind": "peak", "source": "x", "precision": None}
    roofs = [
        {"level": "compute", "per_s": per_s, "kind": "peak", "source": "x", "precision": name}
        for name, per_s in (("fp32", 67e12), ("tf32", 495e12), ("bf16", 989e12))
    ]
    level = {
        "level": "DRAM",
        "bytes": 1e9,
        "source": "compulsory",
        "flops_per_byte": 50.0,
        "bytes_per_s": 1e12,
    }
    point = {
        "label": "gemm",
        "calls": 1,
        "time_s": 1e-3,
        "flops_per_s": 5e13,
        "flops_source": "direct algorithm",
    }
    point |= {
        "levels": [level],
        "bound": "memory",
        "utilisation": 0.5,
        "roof_kind": "peak",
        "exceeded_roofs": [],
    }
    roofline = {"batch": 8, "by": "kernel", "points": [point], "roofs": [*roofs, memory], "more": 0}
    document["runs"][0]["roofline"] = {**roofline, "time_without_work_s": 0.0}
    (tmp_path / "roofs.html").write_text(render_html(document))
    with Page(tmp_path / "roofs.html") as opened:
        opened.settle()
        labels = opened.evaluate(
            "[...document.querySelectorAll('#roofline text')].map(e => e.textContent)"
        )
        assert {
            "fp32 67.0 TFLOP/s (peak)",
            "tf32 495 TFLOP/s (peak)",
            "bf16 989 TFLOP/s (peak)",
        } <= set(labels)
        # No two of them lie on each other.
        heights = opened.evaluate(
            "[...document.querySelectorAll('#roofline text')].filter(e => "
            "e.textContent.includes('FLOP/s (')).map(e => e.getBoundingClientRect().y)"
        )
        heights.sort()
        assert all(b - a >= 12 for a, b in pairwise(heights))
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("width", "scale"), [(375, 2), (640, 2)], ids=["phone", "1280 pixels at 200 %"]
)
def test_no_chart_and_no_table_needs_sideways_scrolling(page, width, scale):
    with Page(page, width, 812) as opened:
        opened.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=500,
            deviceScaleFactor=scale,
            mobile=False,
        )
        for run in (0, 1):
            opened.evaluate(f"document.querySelectorAll('#runs button')[{run}].click()")
            opened.settle()
            assert opened.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_control_has_a_name_and_text_has_contrast(page, dark):
    """Names for screen readers; 4.5 between text and its background."""
    nameless = """[...document.querySelectorAll('button, select, input, canvas, [role=img], [tabindex="0"]')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
        .map(e => e.outerHTML)"""
    contrast = """(() => {
        const pen = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
        const light = (colour) => {
            pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)
                .map(v => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const style = getComputedStyle(document.documentElement);
        const of = (name) => light(style.getPropertyValue('--' + name));
        const found = ['ink', 'soft', 'accent', 'good', 'backward'].map(name => [name, ratio(of(name), of('card'))]);
        return found.filter(([, value]) => value < 4.5); })()"""
    with Page(page, dark=dark) as opened:
        opened.settle()
        assert opened.evaluate(nameless) == []
        assert opened.evaluate(contrast) == []


@needs_browser
def test_markup_in_names_stays_text(page):
    with Page(page) as opened:
        opened.settle()
        shown = opened.evaluate(
            "[...document.querySelectorAll('#kernel-table td.name')].map(e => e.title)"
        )
        assert HOSTILE in shown
        assert (
            opened.evaluate(
                "document.querySelectorAll('main img, main svg[onload], main b b, h1 i').length"
            )
            == 0
        )
        assert opened.evaluate("document.title").startswith("<i>net</i>")
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_it_prints_with_every_cause_open(page):
    with Page(page) as opened:
        opened.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert (
            opened.evaluate("document.querySelectorAll('#causes details:not([open])').length") == 0
        )
        assert opened.send("Page.printToPDF")["data"]


def many_kernels(rows):
    """A document of one run whose table and timeline are as large as they get."""
    kernels = [
        {
            "name": f"kernel_{i}",
            "short": f"kernel_{i}",
            "family": "GEMM",
            "layer": f"layer{i % 97}",
            "phase": "forward",
        }
        | {
            "ms": [1 / (i + 1)],
            "calls": [1],
            "gflops": [None],
            "gbs": [None],
            "path": f"layer{i % 97}",
            "op": None,
        }
        for i in range(rows)
    ]
    spans = [[i % 8, i * 10.0, 8.0, i % 50, 1] for i in range(32_000)]
    names = [[f"kernel_{i}", "layer", "forward"] for i in range(50)]
    lanes = [
        {"label": letter, "kind": "kernels", "busy_us": 32_000.0, "count": 4000}
        for letter in "abcdefgh"
    ]
    point = CurvePoint(8, Estimate(1.0, 0.9, 1.1, 0.0), 0.01, 9, 3, True)
    remedies = RemedyTable(rows=(), others=(), sentence=None)
    explained = ExplainDocument(
        recording="many", headline="many", network="many", modelled=False, complete=True, device=None, protocol=None,
        locked_sm_clock_hz=None, lost=None, empty=[], warnings=[], notes=[], disturbances=None, curve=[point],
        statistic="median", rounds=3, profiled=False, answers=[], findings=[], anomalies=[], fixed_cost=None,
        experiments=[],
        remedies=remedies, batch_size=None, unit="step", slow_steps=[],
    )  # fmt: skip
    run = {
        "name": "many", "step": None, "device": None, "facts": [], "lost": [], "caveats": [],
        "explain": explained, "lead": "", "tested": {}, "roofline": None, "how_to_test": None, "energy": None, "first": None,
        "steps": None, "runs_of_experiments": None,
        "axis": {"name": "batch", "one": "sample", "unit": "samples", "value": "batch size", "values": "batch sizes"},
        "timelines": [{"batch": 8, "step_us": 320_000.0, "lanes": lanes, "step": 0, "spans": spans, "names": names}
                      | {"kernels": 32_000, "hidden": 0}],
        "kernels": {"batches": [8], "rows": kernels, "more": 0, "more_ms": [0.0], "idle_ms": [0.0], "calls": rows},
    }  # fmt: skip
    return {"version": "0", "runs": [run], "comparison": None}


@pytest.mark.slow
@needs_browser
def test_the_largest_table_and_timeline_draw_a_page_of_rows_at_a_time(tmp_path):
    (tmp_path / "many.html").write_text(render_html(many_kernels(2000)))
    assert (tmp_path / "many.html").stat().st_size < 5e6
    with Page(tmp_path / "many.html") as opened:
        assert opened.evaluate("document.querySelectorAll('#kernel-table tbody tr').length") == 100
        opened.evaluate("document.getElementById('filter').value = 'layer5'")
        opened.evaluate("document.getElementById('filter').dispatchEvent(new Event('input'))")
        assert opened.evaluate(
            "document.querySelector('#kernels [role=status]').textContent"
        ).startswith("231 of 2000")
        assert opened.problems == []


@pytest.mark.slow
@needs_browser
def test_numbers_read_as_in_the_terminal(page):
    values = [
        0.0,
        1.0,
        -0.00123456,
        0.0000001,
        12.345,
        99999.0,
        320.3e9,
        8.873e12,
        4.96e9,
        512.0,
        1733e6,
    ]
    calls = [("number", (4,)), ("signed", (3,))] + [
        ("quantity", (unit, 3)) for unit in ("B", "B/s", "FLOP/s", "Hz")
    ]
    python = {
        "number": numbers.number,
        "signed": numbers.with_sign,
        "quantity": numbers.quantity,
    }
    with Page(page) as opened:
        for name, rest in calls:
            for value in values:
                if name == "quantity" and value < 0:
                    continue
                shown = opened.evaluate(f"{name}({', '.join(map(json.dumps, (value, *rest)))})")
                assert shown.replace("−", "-") == python[name](value, *rest), (name, value, rest)


@pytest.mark.slow
def test_rows_of_two_recordings_are_those_of_compare(tmp_path, document_of):
    """Without layers, rows are operators with their shapes, which only some columns of the kernels
    tell.
    """
    profile, runs = (
        PROFILES / "tl_torch_compile_triton.json.gz",
        [tmp_path / "one", tmp_path / "two"],
    )
    for run in runs:
        assert (
            main(["import", str(profile), "--batch", "8", "--steps", "whole", "-o", str(run)]) == 0
        )
    assert main(["report", *map(str, runs), "-o", str(tmp_path / "page.html")]) == 0
    compared = document_of("compare", *map(str, runs))
    shown = embedded(tmp_path / "page.html")["comparison"]
    assert compared["by"] == shown["by"]
    assert compared["rows"][: len(shown["rows"])] == shown["rows"]
    assert any(re.search(r" \d+x\d+", row["label"]) for row in shown["rows"])
