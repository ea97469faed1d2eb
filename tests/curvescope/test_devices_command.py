import json

from curvescope.cli import main


def test_every_gpu_is_listed_with_its_peaks(capsys):
    assert main(["devices", "--json"]) == 0
    listed = {d["key"]: d for d in json.loads(capsys.readouterr().out)["devices"]}
    assert {"k40", "titanx_maxwell", "gtx1080", "titanx_pascal", "p100", "v100", "h200"} <= set(listed)
    assert listed["h200"]["peak_flops_per_s_base"] is None  # nobody published that clock


def test_one_gpu_is_shown_with_its_sources_and_doubts(capsys):
    assert main(["devices", "gtx1080ti"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "deviceQuery" in shown
    assert "not verified" in shown


def test_an_unknown_gpu_is_refused(capsys):
    assert main(["devices", "gtx1081"]) == 2
    assert "did you mean gtx1080" in capsys.readouterr().err
