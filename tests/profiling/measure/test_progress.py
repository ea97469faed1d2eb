from curvescope.profiling.measure.progress import Pace, Progress


def test_pace_adds_the_last_visit_of_each_and_the_rounds_that_are_owed():
    now = 50.0
    pace = Pace(3, 100.0, elapsed_s=7.0, clock_s=lambda: now)
    for batch, seconds in ((1, 5.0), (2, 10.0), (1, 3.0)):
        with pace.visit(batch):
            now += seconds
    # 7 s of an earlier start and 18 s of now; 10 s for the 2 that is left, and a round more of 3 + 10 s.
    assert pace.progress([2], round_=1, doing="") == Progress(25.0, 100.0, "")
    now += 60.0
    with pace.visit(3):
        now += 20.0
    assert pace.progress([2], round_=1, doing="") == Progress(105.0, 105.0 + 10 + 33, "")


def test_pace_has_time_for_visits_that_end_within_the_limit():
    now = 0.0
    pace = Pace(3, 100.0, clock_s=lambda: now)
    with pace.visit("small"):
        now += 10.0
    with pace.visit("large"):
        now += 40.0
    assert pace.has_time_for(["small", "large"])
    now += 1.0
    assert not pace.has_time_for(["small", "large"])
    assert pace.has_time_for(["small"])
    assert Pace(1, None).has_time_for(["small"])
