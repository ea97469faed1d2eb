"""The GPUs of the table of devices with their peaks; for one GPU, each number with its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from ...analysis.render import terminal
from ...analysis.render.tables import Indented, table
from ...base.numbers import number
from ...profiling.hardware.devices import CLOCKS, Device, devices, get_device


@dataclass(frozen=True, kw_only=True)
class ListedDevice(Device):
    """A GPU of the table of devices."""

    peak_flops_per_s_base: float | None  # fp32 peak at the base clock
    peak_flops_per_s_boost: float | None  # fp32 peak at the boost clock


@dataclass(frozen=True)
class DevicesDocument:
    """The table of devices: `doctor --list devices`."""

    devices: Sequence[ListedDevice]  # one per GPU


def list_devices(card: str | None, *, as_json: bool) -> None:
    """Print all GPUs, or the numbers of one."""
    chosen = devices() if card is None else (get_device(card),)
    if as_json:
        from ...analysis.render.documents import print_document

        print_document(DevicesDocument([_describe(device) for device in chosen]))
    elif card is not None:
        _print_facts(chosen[0])
    else:
        _print_table(chosen)


def _describe(device: Device) -> ListedDevice:
    base, boost = map(device.peak_flops_per_s, CLOCKS)
    return ListedDevice(**vars(device), peak_flops_per_s_base=base, peak_flops_per_s_boost=boost)


def _print_facts(device: Device) -> None:
    console = terminal.console()
    console.print(
        f"{device.name} ({device.chip}, {device.architecture}, compute capability "
        f"{device.compute_capability}); long kernels run at the {device.running_clock} clock",
        style="bold",
    )
    facts = table("fact", "value", "source", whole=("fact",))
    sources: dict[str, int] = {}
    for name, fact in device.facts.items():
        source = fact.source if fact.verified else f"{fact.source} (not verified)"
        position = sources.setdefault(source, len(sources) + 1)
        facts.add_row(name, f"{fact.value:,.0f}", f"[{position}]")
    console.print(facts)
    console.print()
    for source, position in sources.items():
        console.print(Indented(Text(source), label=f"[{position}] "))


def _print_table(listed: Sequence[Device]) -> None:
    console = terminal.console()
    rows = table(
        "name",
        "GPU",
        "SMs",
        "base",
        "boost",
        "clock",
        "GB/s",
        "L2 MB",
        "GB",
        words=("GPU",),
        whole=("name", "clock"),
        optional=("clock", "L2 MB"),
    )
    for device in listed:
        base, boost = (_in_unit(device.peak_flops_per_s(clock), 1e12) for clock in CLOCKS)
        rows.add_row(
            device.key,
            device.name,
            str(device.sm_count),
            base,
            boost,
            device.running_clock,
            _in_unit(device.memory_bytes_per_s, 1e9),
            _in_unit(device.l2_bytes, 1e6),
            _in_unit(device.memory_bytes, 1e9),
        )
    console.print(rows)
    note = (
        "base, boost: fp32 peak at that clock in TFLOP/s; clock: the one of long kernels; GB is "
        "10⁹ bytes."
    )
    console.print(note, style="dim")


def _in_unit(value: float | None, unit: float) -> str:
    return "-" if value is None else number(value / unit, 3)
