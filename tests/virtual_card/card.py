"""Chooses a virtual card and runs programs on it; alone:
`python -m tests.virtual_card.card h100 -- COMMAND`.

A device is one of `profiling/hardware/devices*.toml` by its name. What it costs and what is planted
are lines of the configuration that `src/config.cpp` reads. Nothing that runs here says anything of
a real card.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvescope.profiling.hardware.devices import Device, get_device

from .build import LIBRARY, build
from .measured import cost_lines, device_lines, spread_lines

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / "build" / "virtual" / "card"  # where the command line builds the card
# What a driver calls the cards that the tests use; others have the name of the table.
DRIVER_NAMES = {
    "k40": "Tesla K40m",
    "gtx1080": "NVIDIA GeForce GTX 1080",
    "titanx_pascal": "NVIDIA TITAN X (Pascal)",
    "v100": "Tesla V100-SXM2-16GB",
    "h100": "NVIDIA H100 80GB HBM3",
}


# What the double of CUPTI leaves out for other tests, and CUPTI 13.0 does on an H100: see
# ../native/fake_cupti*.cpp.
AS_ON_A_CARD = {
    "FAKE_CUPTI_CLOCKS_NEED_CONTEXT": "1",
    "FAKE_CUPTI_TELLS_FLUSHES": "1",
    "FAKE_CUPTI_LEAVES": "clocks",
}


@dataclass(frozen=True)
class Card:
    """One machine with virtual cards.

    Attributes:
        devices: names of the devices, in CUDA's order.
        virtual_time: whether time is the card's alone, so that the host's work takes none; else it
            is the host's.
        costs: changed costs, by the names of `Costs` in src/card.h.
        plants: planted causes, each by the names of `Plant` there.
        facts: changed facts of all the devices, by the names of `DeviceFacts` there.
        noise: the seed of what varies from run to run as on an H100; 0: nothing does.
    """

    devices: Sequence[str] = ("h100",)
    virtual_time: bool = False
    costs: Mapping[str, float] = field(default_factory=dict)
    plants: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    noise: int = 0

    def lines(self, shared: Path) -> list[str]:
        """The configuration; `shared` is the file that the processes of a test share."""
        lines = [f"time {'virtual' if self.virtual_time else 'real'}", f"shared {shared}"]
        for name in self.devices:
            facts = {**device_facts(get_device(name)), **self.facts}
            lines += ["device", *(f"fact {fact} {value}" for fact, value in facts.items())]
            lines += device_lines(name)
        lines += cost_lines(self.devices[0])  # one machine has one table of costs
        lines += [f"cost {name} {value}" for name, value in self.costs.items()]
        lines += [plant_line(plant) for plant in self.plants]
        if self.noise:
            lines += [f"noise {self.noise}", *spread_lines()]
        return lines

    def environment(self, folder: Path, libraries: Path = LIBRARIES) -> dict[str, str]:
        """The variables of a program that runs on the card.

        Args:
            folder: an empty folder, for the configuration and what processes share.
            libraries: where `build` put the card.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "card.txt"
        file.write_text("\n".join(self.lines(folder / "shared")) + "\n")
        # What is elapsed, the clocks' values at the beginning, and room for the rest: SharedState
        # in src/clock.h.
        times = struct.pack("qqq", 0, time.monotonic_ns(), time.time_ns())
        (folder / "shared").write_bytes(times.ljust(1 << 16, b"\0"))
        # Threads of OpenBLAS that have nothing to do read the clock all the time, which moves a
        # virtual one.
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return {
            **os.environ,
            **alone,
            **AS_ON_A_CARD,
            "VIRTUAL_CARD": str(file),
            **loading(libraries),
        }


def loading(libraries: Path) -> dict[str, str]:
    """The variables by which a process loads the card that `build` put into a folder."""
    others = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_PRELOAD": str(libraries / LIBRARY),
        "LD_LIBRARY_PATH": f"{libraries}:{others}" if others else str(libraries),
        # PyTorch loads NVIDIA's libcupti as well, which the collector would find first.
        "CURVESCOPE_CUPTI": str(libraries / "libcupti.so.13"),
    }


def plant_line(plant: Mapping[str, Any]) -> str:
    """The line of a planted cause, as a running program gives it to
    `virtual_card_configure` too.
    """
    return " ".join(["plant", *(f"{name} {value}" for name, value in plant.items())])


def device_facts(device: Device) -> dict[str, Any]:
    """The facts of a device that the card needs, by the names of `DeviceFacts` in src/card.h."""
    major, minor = device.compute_capability.split(".")
    sm = device.sm

    def fmas(name: str) -> float:
        return device.facts[name].value if name in device.facts else 0

    return {
        "name": DRIVER_NAMES.get(device.key, device.name),
        "major": major,
        "minor": minor,
        "sm_count": device.sm_count,
        "warps_per_sm": sm.warps,
        "blocks_per_sm": sm.blocks,
        "registers_per_sm": sm.registers,
        "shared_per_sm": sm.shared_bytes,
        "shared_per_block": sm.shared_block_bytes,
        "l2_bytes": device.l2_bytes,
        "memory_bytes": device.memory_bytes,
        "memory_bytes_per_s": device.memory_bytes_per_s,
        "clock_hz": device.clock_hz,
        "base_clock_hz": device.facts["base_clock_hz"].value,
        "fp64_per_sm": fmas("fp64_lanes_per_sm"),
        "fp32_per_sm": device.fp32_lanes_per_sm,
        "tf32_per_sm": fmas("tf32_tensor_fmas_per_sm"),
        "fp16_per_sm": fmas("fp16_tensor_fmas_per_sm"),
        "fp16_lanes": fmas("fp16_lanes_per_sm"),
        "fp8_per_sm": fmas("fp8_tensor_fmas_per_sm"),
    }


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", help="names of devices, with commas between them")
    parser.add_argument("--virtual-time", action="store_true", help="the host's work takes no time")
    parser.add_argument(
        "--cost", action="append", default=[], metavar="NAME=VALUE", help="a cost of src/card.h"
    )
    parser.add_argument(
        "--fact", action="append", default=[], metavar="NAME=VALUE", help="a fact of src/card.h"
    )
    parser.add_argument(
        "--plant", action="append", default=[], metavar="NAME=VALUE,...", help="a planted cause"
    )
    parser.add_argument(
        "--noise", type=int, default=0, metavar="SEED", help="what varies as on an H100"
    )
    parser.add_argument("command", nargs="+", help="after a --; it may have others")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    # argparse would take away the wrong one of several
    chosen = parser.parse_args([*words[:at], *words[at + 1 : at + 2]])
    command = words[at + 1 :] or chosen.command
    card = Card(
        chosen.devices.split(","),
        chosen.virtual_time,
        _pairs(chosen.cost),
        [_pairs(text.split(",")) for text in chosen.plant],
        _pairs(chosen.fact),
        chosen.noise,
    )
    build(LIBRARIES)
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, env=card.environment(Path(folder)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
