"""Results are replaced where they stand in a page, and nothing else changes."""

from benchmarks.evidence import with_results

PAGE = """# A

- The best is **1**.

## B

What the rows mean.

| a | b |
|---|--:|
| old | 1 |
| old | 2 |

| b | c |
|---|--:|
| kept | 3 |
"""


def test_a_table_or_a_line_is_replaced_in_its_place():
    kept = ["| old | 1 |", "| old | 2 |"]
    assert with_results(PAGE, "## B", kept) == with_results(PAGE, "| a |", kept) == PAGE
    assert with_results(PAGE, "## B", ["| new | 4 |"]) == PAGE.replace(
        "\n".join(kept), "| new | 4 |"
    )
    assert with_results(PAGE, "| b | c |", ["| new | 4 |"]) == PAGE.replace(
        "| kept | 3 |", "| new | 4 |"
    )
    assert with_results(PAGE, "- The best is", ["- The best is **2**."]) == PAGE.replace(
        "**1**", "**2**"
    )
