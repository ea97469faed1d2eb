import pytest

from curvescope.cli import main
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.networks import names

from ..tables import grade


@pytest.fixture
def modelled(tmp_path, document_of):
    """Model a network; return the document of the recording in `run`, or in a folder of its own."""
    return lambda *arguments, to="run": document_of("diagnose", *arguments, "-o", tmp_path / to)


@pytest.mark.slow
def test_a_modelled_diagnosis_says_so_everywhere(modelled, tmp_path, text_of):
    document = modelled("vgg_a", "--card", "gtx1080", "--batch", "16..128")
    assert document["modelled"] is True
    assert "modelled" in document["device"]["name"]
    recording = open_recording(tmp_path / "run")
    assert recording.meta["recording_type"] == "model"
    assert set(recording.frame("kernels")["source"]) == {"model"}
    assert "MODELLED, not measured" in text_of("explain", tmp_path / "run").splitlines()[0]
    assert "Modelled, not measured" in text_of("explain", tmp_path / "run", "--all")
    assert "Modelled, not measured" in text_of("breakdown", tmp_path / "run", "--by", "phase")
    for command in (["runs"], ["compare", "--steps"], ["roofline"]):
        path = tmp_path if command == ["runs"] else tmp_path / "run"
        assert "modelled" in text_of(*command, path), command
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert "modelled" in (tmp_path / "page.html").read_text()


def test_a_gpu_whose_architecture_is_not_modelled_is_refused(tmp_path, refusal_of):
    """AMD's GPUs are listed to read traces."""
    assert "no constants for cdna3" in refusal_of(
        "diagnose", "vgg_a", "--card", "mi300x", "--batch", "16", "-o", tmp_path / "run"
    )


def test_a_model_repeats_itself_but_its_intervals_are_not_empty(modelled):
    document = modelled("alexnet", "--card", "v100", "--batch", "8..32")
    for point in document["curve"]:
        time_ms = point["time_ms"]
        assert time_ms["low"] < 0.97 * time_ms["value"] < 1.03 * time_ms["value"] < time_ms["high"]


@pytest.mark.slow
def test_what_if_the_card_had_more_memory_or_sms(modelled, tmp_path, document_of):
    times_ms, names = {}, {}
    for facts in ("", "memory_bytes=12GiB", "sm_count=40"):
        card = f"gtx1080,{facts}" if facts else "gtx1080"
        document = modelled("vgg_a", "--batch", "128", "--card", card, to=f"run {facts}")
        times_ms[facts], names[facts] = (
            document["curve"][0]["time_ms"]["value"],
            document["device"]["name"],
        )
    assert (
        times_ms["sm_count=40"] < 0.7 * times_ms[""] < times_ms["memory_bytes=12GiB"] < times_ms[""]
    )
    assert names["sm_count=40"].endswith("torch rules, what if sm_count were 40)")
    (compute, *_) = document_of("roofline", tmp_path / "run sm_count=40")["roofs"]
    assert compute["per_s"] == pytest.approx(2 * 8.87e12, rel=0.01)


@pytest.mark.slow
def test_cards_are_compared_with_the_error_of_the_model(modelled, tmp_path, document_of, text_of):
    """Another card is wrong in its own way; the same card with more memory is wrong alike in every
    layer whose kernel stays.
    """
    cards = {"card": "gtx1080", "more": "gtx1080,memory_bytes=12GiB", "volta": "v100"}
    for name, card in cards.items():
        modelled("vgg_a", "--batch", "128", "--card", card, to=name)

    def change_to(name):
        compared = document_of("compare", tmp_path / "card", tmp_path / name)
        (line,) = compared["steps"]
        rows = {row["label"]: row["changes"][0] for row in compared["rows"]}
        return line["changes"][0], rows

    step, rows = change_to("more")
    same, switched = (rows[f"{layer} backward"] for layer in ("conv4_2", "conv3_2"))
    assert same["low"] == pytest.approx(1) == same["high"]
    assert switched["low"] < 0.9 * switched["speedup"]
    assert 0.8 < step["low"] < step["speedup"] < step["high"] < 1.2
    step, _ = change_to("volta")
    assert step["real"]
    assert step["low"] < 0.9 * step["speedup"] < 1.1 * step["speedup"] < step["high"]
    for name in ("more", "volta"):
        said = text_of("compare", tmp_path / "card", tmp_path / name)
        assert "no interval is known" not in said
        assert "beyond the model's error" in said


@pytest.mark.slow
def test_a_model_has_no_noise_and_needs_no_quiet_machine(modelled, tmp_path, text_of):
    modelled("vgg_a", "--card", "gtx1080", "--batch", "64,128")
    said = text_of("explain", tmp_path / "run", "--pair", "64,128")
    assert "within the model's error" in said
    assert "verdict" in said
    for word in ("quiet machine", "more rounds", "noise\n"):
        assert word not in said


@pytest.mark.parametrize("facts", ["cores=3", "sm_count", "sm_count=many", "=4"])
def test_what_if_needs_facts_of_the_gpu(facts, refusal_of):
    assert facts.partition("=")[0] in refusal_of("diagnose", "vgg_a", "--card", f"gtx1080,{facts}")


GPUS = ("k40", "titanx_maxwell", "gtx1080", "titanx_pascal", "p100", "v100", "h200")


# One of each generation but Pascal's, which most tests here model; all networks are among them.
@pytest.mark.parametrize(
    "device", grade(GPUS, quick=("k40",), in_ci=("titanx_maxwell", "v100", "h200"))
)
def test_every_network_is_modelled_and_every_gpu(device, tmp_path):
    """Each network on two or three of the GPUs: a GPU has the same rules for all, and a network the
    same operators.
    """
    from curvescope.analysis.cost_model.networks import load_operations
    from curvescope.analysis.cost_model.recording import record_model

    for network in names()[GPUS.index(device) % 3 :: 3]:
        step = record_model(tmp_path / network, network, load_operations(network), [2, 4], device)
        assert (step.time_s > 0).all()


def test_a_batch_that_does_not_fit_is_refused_with_the_largest_that_does(tmp_path, refusal_of):
    message = refusal_of(
        "diagnose", "vgg16", "--card", "gtx1080", "--batch", "32..256", "-o", tmp_path / "run"
    )
    assert "vgg16 at batch 128 needs" in message
    assert "64 is the largest that fits" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vgg_a", "--card", "gtx1800"], "did you mean gtx1080"),
        (["vgg_a", "--card", ""], "Unknown GPU"),
        (["vgg_a", "--card", "k40,library=cudnn4"], "choose from cudnn5"),
        (["vgg_a", "--card", "k40", "--quick"], "--card predicts times, and measures none: omit"),
        (["vgg_a", "--card", "k40", "--device", "cpu"], "measures none: omit --device"),
        (["vgg_a", "--card", "k40", "--of", "energy"], "measures none: omit --of"),
        (["--card", "k40"], "Name the network to predict"),
        (["vgg_a", "--card", "k40", "--framework", "theano"], "choose from torch"),
        (["vgg_a", "--card", "cpu,library=cudnn5"], "Unknown GPU"),
        (["vgg_a", "--card", "v100", "--precision", "bf16"], "no tensor cores for bf16"),
    ],
)
def test_bad_input_is_refused_in_words(arguments, words, tmp_path, refusal_of):
    assert words in refusal_of("diagnose", *arguments, "-o", tmp_path / "run")
