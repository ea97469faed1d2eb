"""The lists of `doctor`: the table of GPUs."""


def test_every_gpu_is_listed_with_its_peaks(document_of):
    listed = {d["key"]: d for d in document_of("doctor", "--list", "devices")["devices"]}
    assert {"k40", "titanx_maxwell", "gtx1080", "titanx_pascal", "p100", "v100", "h200"} <= set(
        listed
    )
    assert listed["h200"]["peak_flops_per_s_base"] is None  # nobody published that clock


def test_one_gpu_is_shown_with_its_sources_and_doubts(text_of):
    shown = " ".join(text_of("doctor", "--card", "gtx1080ti").split())
    assert "deviceQuery" in shown
    assert "not verified" in shown


def test_an_unknown_gpu_is_refused(refusal_of):
    assert "did you mean gtx1080" in refusal_of("doctor", "--card", "gtx1081")
