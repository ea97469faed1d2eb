import io
import random

import pytest
from rich.cells import cell_len
from rich.text import Text

from curvescope.analysis.render.tables import Indented, table
from curvescope.analysis.render.terminal import console

WORDS = [
    "aten",
    "convolution",
    "backward",
    "sm80",
    "xmma",
    "gemm",
    "Größe",
    "核",
    "a" * 40,
    "3ul",
    "\x1b[31m",
]
MARKS = ["_", "::", "<", ">", ", ", ".", " ", " (Linear) ", " → ", "-", "(int)"]


def random_name(draw):
    return "".join(draw.choice(WORDS) + draw.choice(MARKS) for _ in range(draw.randint(1, 14)))


def random_number(draw):
    return draw.choice(
        [
            f"{draw.uniform(-1e4, 1e4):+.4g}",
            f"{draw.random():.3f} … {draw.random():.3f}",
            f"{draw.random():.2f} of 33%",
        ]
    )


def printed(renderable, width=None):
    shown = io.StringIO()
    options = {} if width is None else {"width": width}
    console(file=shown, **options).print(renderable)
    return shown.getvalue()


@pytest.mark.first_rows(24)
@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("seed", range(25))
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(seed, width):
    draw = random.Random(seed)
    headings = [f"{random_number(draw)} GFLOP/s"[-16:] for _ in range(draw.randint(1, 20))]
    made = table(
        "kernel",
        *headings,
        "remark",
        "terms",
        left=("remark",),
        words=("terms",),
        optional=headings[::3],
    )
    numbers = []
    for _ in range(draw.randint(1, 6)):
        cells = [random_number(draw) for _ in headings]
        made.add_row(random_name(draw), *cells, random_name(draw), random_name(draw))
        numbers += [
            cell
            for cell, heading in zip(cells, headings, strict=True)
            if heading not in headings[::3]
        ]
    made.add_section()
    out = printed(Indented(made), width)
    assert max(map(cell_len, out.splitlines())) <= width
    assert "\x1b" not in out
    for number in numbers:
        assert number in out


def test_without_a_terminal_nothing_is_shortened_wrapped_or_left_out(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name, remark = (
        "void at::native::kernel<4, at::native::add<float> >(int, float*)",
        "word " * 21 + "end",
    )
    made = table("kernel", "± ms", "remark", words=("remark",), optional=("± ms",))
    made.add_row(name, "0.1", remark)
    heading, rule, row = printed(made).splitlines()
    assert heading.split() == ["kernel", "±", "ms", "remark"]
    assert len(rule) == len(row)
    assert row.split("   ")[0] == name
    assert row.endswith(remark)


@pytest.mark.parametrize("indented", [False, True])
def test_without_a_terminal_a_table_continues_below_at_200_columns(monkeypatch, indented):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "void at::native::kernel<4, at::native::add<float> >(int, float*) " * 8
    made = table("kernel", "± ms", *(f"batch {2**n}" for n in range(30)), optional=("± ms",))
    made.add_row(name.strip(), "0.1", *(f"12.34 of {n}%" for n in range(10, 40)))
    out = printed(Indented(made) if indented else made)
    assert max(map(cell_len, out.splitlines())) <= 200
    assert "± ms" in out
    assert [n for n in range(10, 40) if f"12.34 of {n}%" in out] == list(range(10, 40))
    assert out == printed(Indented(made) if indented else made)


def test_the_variable_columns_gives_a_file_the_width_of_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    made = table("op", "ms")
    made.add_row("aten::_scaled_dot_product_efficient_attention_backward", "1.234")
    assert printed(made).splitlines()[-1] == "_scaled_dot_product_…backward      1.234"


def test_optional_columns_come_back_where_there_is_room():
    made = table("op", "ms", "± ms", "calls", optional=("± ms",))
    made.add_row("aten::add_", "1.5", "0.1", "12")
    assert "± ms" in printed(made, 40)
    assert printed(made, 24).splitlines()[-1].split() == ["aten::add_", "1.5", "12"]


def test_a_column_without_any_value_is_left_out():
    made = table("kernel", "ms", "waves", "bound")
    made.add_row("relu", "1.5", "", "memory")
    made.add_row("gemm", "2.5", "", "")
    assert (
        printed(made, 80).splitlines()[0].split()
        == printed(made).splitlines()[0].split()
        == ["kernel", "ms", "bound"]
    )


def test_columns_that_do_not_fit_follow_below():
    made = table("batch", *(f"column{n}" for n in range(6)), first="right")
    made.add_row("8", *(f"{n}.00" for n in range(6)))
    lines = printed(made, 40).splitlines()
    assert [line.split() for line in lines if line and "─" not in line] == [
        ["batch", "column0", "column1", "column2"],
        ["8", "0.00", "1.00", "2.00"],
        ["batch", "column3", "column4", "column5"],
        ["8", "3.00", "4.00", "5.00"],
    ]


def test_headings_wrap_before_anything_is_left_out():
    made = table("op", "measured GB/s", "95 % interval")
    made.add_row("aten::add_", "12.5", "1 … 2")
    assert [line.split() for line in printed(made, 32).splitlines()[:2]] == [
        ["measured", "95", "%"],
        ["op", "GB/s", "interval"],
    ]


def test_a_change_takes_two_lines_rather_than_lose_both_names():
    made = table("term", "kernel", left=("kernel",))
    made.add_row("conv2 forward", "aten::_slow_conv2d_forward → reorder jit:blk")
    assert [line.split("   ")[-1] for line in printed(made, 60).splitlines()[2:]] == [
        "aten::_slow_conv2d_forward → reorder jit:blk"
    ]
    assert [line.strip() for line in printed(made, 45).splitlines()[2:]] == [
        "conv2 forward  aten::_slow_conv2d_forward →",
        "reorder jit:blk",
    ]


def test_the_same_names_are_readable_at_every_width():
    made = table("term", "ms", "terms", words=("terms",))
    made.add_row("fc6 (Linear) backward *", "+83.8", "fc6 (Linear) backward, optimizer and 40 more")
    lines = printed(made, 60).splitlines()
    assert lines[2].startswith("fc6 (Linear) backward *   +83.8")
    assert max(map(len, lines)) <= 60


def test_sentences_wrap_where_they_are_easy_to_read(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    sentence = Text("word " * 60)
    assert max(map(len, printed(sentence, 200).splitlines())) <= 100
    assert max(map(len, printed(sentence).splitlines())) <= 100


def test_cells_have_to_match_the_columns():
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        table("a", "b").add_row("x")
