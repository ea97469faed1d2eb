"""The processes of one launch, without a launch."""

from curvescope.profiling.measure.process_group import number_nodes


def test_nodes_are_numbered_in_the_order_of_their_first_rank():
    assert number_nodes(["b", "b", "a", "b", "c"]) == [0, 0, 1, 0, 2]
