"""Theoretical occupancy: resident warps of a kernel per SM over the most that an SM holds, and what
would raise it.

It follows from resources alone and is not a speed: our SGEMM is fast at 25 %. The SM's shared
memory has its largest size here, as the driver configures it for a kernel that less would limit.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP_THREADS = 32
MOST_THREADS_PER_BLOCK = 1024
MOST_REGISTERS_PER_THREAD = 255
# Warps get registers in units of 256 (NVIDIA's occupancy calculator, "register allocation unit
# size").
_REGISTER_UNIT = 256
_REGISTERS_PER_BLOCK = 65536
_KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """Limits of an SM of one compute capability."""

    warps: int  # resident at most, as blocks
    blocks: int
    registers: int  # of 32 bits
    shared_bytes: int  # of all resident blocks
    shared_block_bytes: int  # of one block at most, with opt-in
    shared_unit_bytes: int = 256  # allocation unit
    shared_reserved_bytes: int = 0  # of each block, by the system
    partitions: int = 4  # schedulers; registers and warps are divided among them


# Warps, blocks, registers, shared memory per SM and per block. 11.8 still lists Kepler, 13.0 has
# Blackwell too. CCCL's arch_traits.h (libcudacxx/include/cuda/__device) has the same figures for
# 6.0 and later.
SOURCE = (
    "NVIDIA, CUDA C++ Programming Guide 11.8 and 13.0, table Technical Specifications per Compute "
    "Capability"
)
# The one table of SM limits. Units, reserved bytes and partitions are from NVIDIA's occupancy
# calculator (cuda_occupancy.h, CUDA 12.9); the tests compare them with it.
LIMITS = {
    35: SmLimits(64, 16, 65536, 48 * _KIB, 48 * _KIB),
    37: SmLimits(64, 16, 131072, 112 * _KIB, 48 * _KIB),
    50: SmLimits(64, 32, 65536, 64 * _KIB, 48 * _KIB),
    52: SmLimits(64, 32, 65536, 96 * _KIB, 48 * _KIB),
    60: SmLimits(64, 32, 65536, 64 * _KIB, 48 * _KIB, partitions=2),
    61: SmLimits(64, 32, 65536, 96 * _KIB, 48 * _KIB),
    70: SmLimits(64, 32, 65536, 96 * _KIB, 96 * _KIB),
    75: SmLimits(32, 16, 65536, 64 * _KIB, 64 * _KIB),
    80: SmLimits(64, 32, 65536, 164 * _KIB, 163 * _KIB, 128, _KIB),
    86: SmLimits(48, 16, 65536, 100 * _KIB, 99 * _KIB, 128, _KIB),
    89: SmLimits(48, 24, 65536, 100 * _KIB, 99 * _KIB, 128, _KIB),
    90: SmLimits(64, 32, 65536, 228 * _KIB, 227 * _KIB, 128, _KIB),
    100: SmLimits(64, 32, 65536, 228 * _KIB, 227 * _KIB, 128, _KIB),
    120: SmLimits(48, 24, 65536, 100 * _KIB, 99 * _KIB, 128, _KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of a kernel on an SM."""

    blocks: int  # 0 if the kernel cannot be launched
    warps: int
    fraction: float  # resident warps divided by the most
    # what allows no further block: warps, blocks, registers, shared memory
    limiters: tuple[str, ...]


def find_limits(compute_capability: str | None) -> SmLimits | None:
    """Limits of a compute capability, e.g. 6.1; None if unknown."""
    digits = (compute_capability or "").replace(".", "", 1)
    return LIMITS.get(int(digits)) if digits.isdecimal() else None


def nearest_limits(architecture: int) -> SmLimits:
    """Limits of an architecture, or of the newest older one that is known."""
    older = [known for known in LIMITS if known <= architecture]
    return LIMITS[max(older, default=min(LIMITS))]


def occupancy_of(
    limits: SmLimits, block_threads: int, registers_per_thread: int, shared_bytes: int = 0
) -> Occupancy:
    """Theoretical occupancy of a kernel on an SM with these limits."""
    block_warps = -(-block_threads // WARP_THREADS)
    room = {
        "warps": limits.warps // block_warps,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(limits, block_warps, registers_per_thread),
        "shared memory": _blocks_by_shared(limits, shared_bytes),
    }
    blocks = min(room.values())
    limiters = tuple(resource for resource, allowed in room.items() if allowed == blocks)
    return Occupancy(blocks, blocks * block_warps, blocks * block_warps / limits.warps, limiters)


def _blocks_by_registers(limits: SmLimits, block_warps: int, registers_per_thread: int) -> int:
    if registers_per_thread > MOST_REGISTERS_PER_THREAD:
        return 0
    warp_registers = _round_up(max(registers_per_thread, 1) * WARP_THREADS, _REGISTER_UNIT)
    # The launch check assumes that the warps fill four partitions evenly, on 6.0 too, which has
    # only two: the rest of its family could not run such a block.
    if warp_registers * _round_up(block_warps, 4) > _REGISTERS_PER_BLOCK:
        return 0
    warps_per_partition = limits.registers // limits.partitions // warp_registers
    return warps_per_partition * limits.partitions // block_warps


def _blocks_by_shared(limits: SmLimits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_block_bytes:
        return 0
    block_bytes = _round_up(shared_bytes + limits.shared_reserved_bytes, limits.shared_unit_bytes)
    # A kernel without shared memory is never limited by it.
    return limits.shared_bytes // block_bytes if block_bytes else limits.blocks + 1


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
