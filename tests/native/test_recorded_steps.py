"""A recording of the collector goes through every command: steps, layers and batch of programs with
their own habits.

The GPU and libcupti are test doubles; the program, its NVTX ranges and its threads are real.
"""

import pytest

from curvescope.cli import main

# Steps and layers as people write them, none of it Curvescope's: a step is a forward and a backward
# pass of two layers.
TRAINING = """
    import threading, nvtx
    gpu = FakeGpu()
    assert gpu.start() == 0
    gpu.device(0, "Test Double H100")
    me = threading.get_native_id()
    number = iter(range(1, 10_000))
    free_ns, factor = 0, 1

    def run(name, duration_ns):
        global free_ns
        now, correlation = gpu.now(), next(number)
        gpu.call(gpu.LAUNCH_KERNEL, now, now + 2_000, me, correlation)
        start = max(now + 3_000, free_ns)  # one stream: work waits for the work before it
        free_ns = start + duration_ns * factor
        gpu.kernel(name, start, free_ns, correlation, stream=7)

    def train(steps):
        for i in range(steps):
            with nvtx.annotate(MARK.format(i)):
                with nvtx.annotate("forward"):
                    for layer, duration_ns in (("conv1", 300_000), ("fc", 100_000)):
                        with nvtx.annotate(layer):
                            run("gemm_" + layer, duration_ns)
                with nvtx.annotate("backward"):
                    for layer, duration_ns in (("fc", 200_000), ("conv1", 600_000)):
                        with nvtx.annotate(layer):
                            run("gemm_back_" + layer, duration_ns)
                with nvtx.annotate("optimizer"):
                    run("update", 50_000)

    train(6)
"""


def test_ranges_of_a_plain_program_give_steps_layers_phases_and_batch(record_fake):
    code, recording = record_fake(TRAINING.replace("MARK", "'step {} batch_size=32'"))
    assert code == 0
    assert recording.meta["steps_from"] == "marks"
    steps = recording.frame("steps")
    assert list(steps["batch"]) == [32] * 6
    assert (steps["duration_ns"] >= 1_250_000).all()
    assert set(steps["mode"]) == {"training"}
    kernels = recording.frame("kernels")
    assert list(kernels.groupby("step").size()) == [5] * 6
    places = {(row["name"], row["layer"], row["phase"]) for row in kernels.to_dict("records")}
    assert {p for p in places if p[0] != "update"} == {
        ("gemm_conv1", "conv1", "forward"),
        ("gemm_fc", "fc", "forward"),
        ("gemm_back_fc", "fc", "backward"),
        ("gemm_back_conv1", "conv1", "backward"),
    }
    assert {p[2] for p in places if p[0] == "update"} == {"optimizer"}
    assert list(recording.frame("api_calls").groupby("step").size()) == [5] * 6
    assert recording.meta["lost"] == {}


def test_without_marks_steps_come_from_the_repetition_of_the_kernels(record_fake):
    _, recording = record_fake(
        TRAINING.replace("MARK", "'batchnorm {}'").replace("train(6)", "train(8)")
    )
    assert "repetition" in recording.meta["steps_from"]
    assert len(recording.frame("steps")) in (7, 8)


@pytest.mark.slow
def test_a_pattern_says_what_names_mean_and_a_wrong_one_is_refused_before_anything_runs(
    record_fake, tmp_path, refusal_of
):
    program = TRAINING.replace("MARK", "'Durchgang {}'").replace(
        "annotate(layer)", 'annotate("L_" + layer)'
    )
    _, recording = record_fake(
        program, options=["--range-pattern", r"L_(?P<layer>.+)|(?P<step>Durchgang)"]
    )
    assert recording.meta["steps_from"] == "marks"
    assert set(recording.frame("kernels")["layer"].dropna()) == {"conv1", "fc"}
    assert "no regular expression" in refusal_of(
        "record", "-o", tmp_path / "x", "--range-pattern", "(", "--", "true"
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_every_command_works_on_recordings_of_the_collector(record_fake, tmp_path, document_of):
    # Twice the samples in twice the time, then in five times: the bend lies at 64.
    sweep = "".join(
        f"    MARK, factor = 'step {{}} batch_size={batch}', {factor}\n    train(6)\n"
        for batch, factor in ((16, 1), (32, 2), (64, 5))
    )
    # The first step waits for its first launch. It has no batch size, so no command counts it.
    program = TRAINING.replace(
        "    train(6)\n", "    MARK, factor = 'step {}', 1\n    train(1)\n" + sweep
    )
    _, recording = record_fake(program)
    path = str(recording.path)

    def rows_of(batch):
        rows = document_of("breakdown", path, "--by", "layer", "--at", str(batch))["rows"]
        return {row["label"]: row["time_ms"] for row in rows}

    layers = rows_of(32)
    assert layers["conv1 backward"] == pytest.approx(2 * 0.6)
    assert layers["conv1 forward"] == pytest.approx(2 * 0.3)
    told = document_of("explain", path)
    # The host launches in real time, so a step may wait for it: kernels take what they take, idle
    # the rest.
    times = [point["time_ms"]["value"] for point in told["curve"]]
    kernels = [
        sum(time for label, time in rows_of(b).items() if label != "idle" and time)
        for b in (16, 32, 64)
    ]
    assert kernels == pytest.approx([1.25, 2.5, 6.25])
    assert [time - busy for time, busy in zip(times, kernels, strict=True)] == pytest.approx(
        [rows_of(batch)["idle"] for batch in (16, 32, 64)]
    )
    (excess,) = (
        finding
        for finding in told["findings"]
        if finding["shown"]["kind"] == "excess" and finding["shown"]["to"] == 64
    )
    assert excess["shown"]["at"] == 32
    assert excess["value"]["value"] == pytest.approx(times[2] - 2 * times[1])
    assert [
        row["times_ms"][0] for row in document_of("compare", path, path)["steps"]
    ] == pytest.approx(times)
    assert document_of("roofline", path, "--at", "32")["time_without_work_s"] == pytest.approx(
        2.5e-3
    )
    assert main(["report", path, "-o", str(tmp_path / "report.html")]) == 0
    assert "gemm_conv1" in (tmp_path / "report.html").read_text()
