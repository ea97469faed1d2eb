"""Plugins as another package brings them: the examples, found through their entry points, and
broken ones.
"""

import shutil
import sys
from pathlib import Path

import pytest

from curvescope.analysis import causes
from curvescope.analysis.causes import catalogue
from curvescope.base import plugins
from curvescope.cli import main
from curvescope.profiling.hardware import devices

from .. import explained_once
from .recordings import write_planted

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLES = Path(__file__).parents[2] / "examples"
CACHES = (
    plugins.plugins,
    plugins.report_broken,
    devices._load,
    catalogue.weighers,
    catalogue.interventions,
)


def forget():
    """Look for plugins anew."""
    for cached in CACHES:
        cached.cache_clear()
    explained_once.forget()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package on the path as pip would: its modules, and entry points as its pyproject.toml
    has them.
    """
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def put(name, entry_points, modules):
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = [
            f"[{group}]\n{entry} = {value}"
            for group, es in entry_points.items()
            for entry, value in es.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(groups))
        for path in modules:
            shutil.copy(path, site)
        forget()

    yield put
    forget()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]


@pytest.fixture
def example(install):
    def put(kind):
        folder = EXAMPLES / kind
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        modules = [
            path for path in folder.iterdir() if path.name != "pyproject.toml" and path.is_file()
        ]
        install(project["name"], project["entry-points"], modules)

    return put


def broken(install, tmp_path, group, source):
    module = tmp_path / "broken_plugin.py"
    module.write_text(source)
    install("broken-package", {group: {"bad": "broken_plugin"}}, [module])


def test_reader(example, tmp_path, document_of):
    example("reader")
    file = tmp_path / "times.txt"
    file.write_text("layer times in ms\nconv1 winograd 1.5\nfc1 gemm 0.5\n")
    assert main(["import", str(file), "-o", str(tmp_path / "r"), "--batch", "4"]) == 0
    broken_down = document_of("breakdown", tmp_path / "r")
    assert {row["label"]: row["time_ms"] for row in broken_down["rows"] if row["time_ms"]} == {
        "conv1": 1.5,
        "fc1": 0.5,
    }


def test_reader_says_what_is_wrong_with_a_file(example, tmp_path, refusal_of):
    example("reader")
    file = tmp_path / "times.txt"
    file.write_text("layer times in ms\nconv1 winograd\n")
    assert "line 2 is not LAYER KERNEL MILLISECONDS" in refusal_of(
        "import", file, "-o", tmp_path / "r"
    )
    assert not (tmp_path / "r").exists()


def test_device(example, document_of):
    example("device")
    (device,) = document_of("doctor", "--card", "lab")["devices"]
    assert device["facts"]["memory_bytes_per_s"]["source"].startswith("measured in our laboratory")
    assert (
        device["peak_flops_per_s_base"] == 2 * 15 * 128 * 1506e6
    )  # lanes of compute capability 6.1


def test_a_plugin_does_not_replace_a_device_that_is_listed(install, tmp_path):
    known = devices.get_device("gtx1080")
    lab = (EXAMPLES / "device" / "lab_devices.toml").read_text()
    (tmp_path / "lab_devices.toml").write_text(lab.replace("devices.lab_gpu", "devices.gtx1080"))
    entry = {"curvescope.devices": {"lab": "lab_devices"}}
    install("other", entry, [EXAMPLES / "device" / "lab_devices.py", tmp_path / "lab_devices.toml"])
    assert devices.get_device("gtx1080") == known


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(("blocks_per_sample", "claimed"), [(4, True), (1, False)])
def test_cause(example, tmp_path, blocks_per_sample, claimed, text_of):
    """A kernel that takes as long at batch 4 as at 8, with 16 and 32 blocks on 20 SMs; and with 4
    and 8.
    """
    example("cause")

    def grid(steps, kernels):
        batches = kernels["step"].map(dict(zip(steps["step"], steps["batch"], strict=True)))
        kernels["grid_x"], kernels["grid_y"], kernels["grid_z"] = blocks_per_sample * batches, 1, 1

    path = write_planted(tmp_path / "r", "fixed cost amortised", change=grid)
    assert ('"small grid"' in text_of("explain", path, "--pair", "4,8", "--json")) == claimed


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no licence')", "it cannot be imported (RuntimeError: no licence)"),
        ("NAME = 'x'", "broken_plugin has no recognises and no read"),
        (
            "NAME = 'x'\nread = None\ndef recognises(source): return 1 / 0",
            "recognises() failed (ZeroDivisionError",
        ),
    ],
)
def test_a_broken_reader_is_named_and_the_others_go_on(install, tmp_path, capsys, source, says):
    broken(install, tmp_path, plugins.READERS, source)
    file = tmp_path / "times.txt"
    file.write_text("nothing known")
    assert main(["import", str(file), "-o", str(tmp_path / "r")]) == 2
    error = capsys.readouterr().err
    assert f"plugin bad of broken-package is skipped: {says}" in error
    assert "pip uninstall broken-package" in error
    assert "no profile that Curvescope reads" in error


@pytest.mark.slow
@pytest.mark.parametrize("body", ["return 1 / 0", "return 'because'"])
def test_a_broken_cause_claims_nothing(install, tmp_path, capsys, body, text_of):
    path = write_planted(tmp_path / "r")
    without = text_of("explain", path, "--json")
    broken(install, tmp_path, plugins.CAUSES, f"CAUSE = 'x'\ndef weigh(case): {body}")
    assert main(["explain", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert out == without
    assert err.count("plugin bad of broken-package is skipped: weigh()") == 1


HEAD = """
from curvescope.analysis.causes import Intervention
CAUSE = "magic"
def weigh(case): return None
"""


def test_a_cause_names_its_experiment(install, tmp_path, capsys):
    source = f"{HEAD}INTERVENTION = Intervention(expected='It goes away.', term=('wand',))"
    broken(install, tmp_path, plugins.CAUSES, source)
    assert causes.factors("term")["wand"] == "magic"
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("intervention", "says"),
    [
        (
            "Intervention(expected='It goes away.', term=('onednn',))",
            "another cause has its factors: onednn",
        ),
        ("7", "INTERVENTION is no Intervention"),
    ],
)
def test_an_experiment_that_does_not_fit_is_named_and_left_out(
    install, tmp_path, capsys, intervention, says
):
    broken(install, tmp_path, plugins.CAUSES, f"{HEAD}INTERVENTION = {intervention}")
    assert causes.factors("term")["onednn"] == "slow library call"
    assert "magic" not in causes.interventions()
    assert says in capsys.readouterr().err


def test_broken_devices_are_named(install, tmp_path, capsys):
    broken(install, tmp_path, plugins.DEVICES, "DEVICES = '/nowhere.toml'")
    assert main(["doctor", "--list", "devices"]) == 0
    out, err = capsys.readouterr()
    assert "gtx1080" in out
    assert "its DEVICES cannot be read" in err
