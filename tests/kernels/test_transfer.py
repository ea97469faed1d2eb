"""Copies between host and device, on a torch whose pinned memory is pageable: nothing here ran on a
GPU.
"""

import numpy as np
import pytest

from curvescope.cli import main
from curvescope.kernels.backends import UnsupportedError
from curvescope.kernels.backends.pytorch import _transfer
from curvescope.kernels.transfer import HOSTS, KINDS, Transfer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", HOSTS)
def test_every_number_crosses_the_link_once_and_arrives(monkeypatch, kind, host):
    torch = pytest.importorskip("torch")
    pinned, empty = [], torch.empty

    def empty_on_host(shape, *, dtype, pin_memory):
        pinned.append(pin_memory)
        return empty(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty_on_host)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    problem = Transfer(kind, host, 4002)
    operands = problem.operands(np.random.default_rng(0))
    prepared = _transfer(torch, problem, [torch.from_numpy(operands[0].copy())], "cuda:0")
    assert not problem.error(operands, prepared.result()).acceptable  # before the copy
    prepared.run()
    assert problem.error(operands, prepared.result()).acceptable
    assert pinned == [host == "pinned"]


def test_on_a_cpu_there_is_no_link(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    with pytest.raises(UnsupportedError, match="no link"):
        _transfer(torch, Transfer(), [torch.zeros(4)], "cpu")
    assert (
        main(
            ["bench", "transfer", "--axis", "size=64", "--device", "cpu", "-o", str(tmp_path / "r")]
        )
        == 0
    )
    assert "no link to a device" in "".join(capsys.readouterr())
