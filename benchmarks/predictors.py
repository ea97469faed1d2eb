"""The cost model's errors beside what published predictors report of theirs.

Ours are read from docs/cost-model-validation.md, which `cost_model.py` writes; theirs are what their papers report, on
other data: the columns stand beside each other for scale, and are no ratio.
"""

from __future__ import annotations

import re
from pathlib import Path

VALIDATION = Path(__file__).parents[1] / "docs" / "cost-model-validation.md"
# Section of the page, kind of the table's row over all GPUs, what it is.
OURS = (
    ("A GPU left out of the fit, another of its architecture in it", "forward", "forward convolution, GPU left out"),
    ("A GPU left out of the fit, another of its architecture in it", "backward_data", "data gradient, GPU left out"),
    ("A GPU left out of the fit, another of its architecture in it", "product", "matrix product, GPU left out"),
    ("An architecture left out of the fit", "forward", "forward convolution, architecture left out"),
)
PUBLISHED = (
    (
        "Habitat (Yu et al., USENIX ATC 2021)",
        "11.8 %",
        "whole training iterations, where it may measure on another card",
    ),
    ("Justus et al. (IEEE Big Data 2018)", "10.9 %", "as they report"),
    ("Justus et al. (IEEE Big Data 2018)", "39.6 %", "on a V100 that it had not seen"),
)


def held_out(page: str, section: str, kind: str) -> tuple[int, str, str] | None:
    """Rows, median and mean error of a kind over all GPUs of a section; null where the page has none."""
    parts = re.split(r"^#+ (.*)$", page, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = re.search(rf"^\| all \| {kind} \| (\d+) \| (\S+) \| (\S+) \|", texts.get(section, ""), re.MULTILINE)
    return (int(found[1]), found[2], found[3]) if found else None


def main() -> None:
    """Print both."""
    page = VALIDATION.read_text()
    print(f"{'ours':<48}{'rows':>6}{'median':>9}{'mean':>9}")
    for section, kind, what in OURS:
        found = held_out(page, section, kind)
        assert found is not None, f"docs/cost-model-validation.md has no row of {kind} under {section}"
        print(f"{what:<48}{found[0]:>6}{found[1]:>9}{found[2]:>9}")
    print()
    for name, error, what in PUBLISHED:
        print(f"{name:<40}{error:>8}  {what}")


if __name__ == "__main__":
    main()
