from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fitting.published import read_choices
from benchmarks.fitting.trees import as_document, as_markdown, learn_choice
from curvescope.analysis.cost_model.learned import Branch
from curvescope.profiling.hardware.devices import get_device

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


def test_a_tree_finds_the_rule_that_made_the_choices():
    group = next(group for group in read_choices(PUBLISHED) if group.device == "titan_v")
    made = replace(group, algorithms=np.where(group.problems.k <= 100, "GEMM", "FFT"))
    choice = learn_choice([made])
    assert isinstance(choice.tree, Branch)
    assert (choice.tree.feature, choice.tree.below, choice.tree.above) == ("outputs", "GEMM", "FFT")
    assert 96 <= choice.tree.most <= 112
    assert list(as_markdown(choice.tree)) == [
        f"- outputs {s} {choice.tree.most:g}: {a}" for s, a in (("≤", "GEMM"), (">", "FFT"))
    ]
    assert as_document(choice)["knows_kepler"] is False


def test_the_choices_of_other_architectures_tell_those_of_volta():
    groups = [group for group in read_choices(PUBLISHED) if group.source.endswith("asked")]
    choice = learn_choice([group for group in groups if group.architecture != "volta"])
    for device in ("v100", "titan_v"):
        runs = [group for group in groups if group.device == device]
        agree = [choice.take(group.problems, get_device(device)) == group.algorithms for group in runs]
        assert np.concatenate(agree).mean() > 0.8
