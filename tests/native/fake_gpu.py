"""The test doubles of libcupti and of the CUDA driver, for the programs that tests record.

No GPU is in any of this.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

LAYOUTS = json.loads(
    (Path(__file__).parents[1] / "data" / "cupti_layouts" / "layouts.json").read_text()
)

# What NVIDIA's headers say of toolkits whose headers are not in a wheel: which type was current
# until when.
_BEFORE_WHEELS = {
    "11.0": (
        13,
        {
            "kernel": "Kernel5",
            "memcpy": "Memcpy3",
            "memcpy_peer": "MemcpyPtoP2",
            "memset": "Memset2",
        },
    ),
    "11.1": (
        14,
        {
            "kernel": "Kernel5",
            "memcpy": "Memcpy4",
            "memcpy_peer": "MemcpyPtoP3",
            "memset": "Memset3",
        },
    ),
    "11.4": (
        15,
        {
            "kernel": "Kernel6",
            "memcpy": "Memcpy4",
            "memcpy_peer": "MemcpyPtoP3",
            "memset": "Memset3",
        },
    ),
}
TOOLKITS = [*_BEFORE_WHEELS, *LAYOUTS["toolkits"]]

KIND_NUMBERS = {
    "memcpy": 1,
    "memset": 2,
    "driver": 4,
    "runtime": 5,
    "device": 8,
    "context": 9,
    "kernel": 10,
    "overhead": 17,
    "environment": 20,
    "memcpy_peer": 22,
    "synchronization": 38,
    "memory": 49,
}


def structs(toolkit: str) -> dict[str, str]:
    """The type of each kind of record that a toolkit's CUPTI writes."""
    oldest = LAYOUTS["toolkits"]["11.7"]["records"]
    if toolkit not in _BEFORE_WHEELS:
        return LAYOUTS["toolkits"][toolkit]["records"]
    return oldest | {
        kind: f"CUpti_Activity{name}" for kind, name in _BEFORE_WHEELS[toolkit][1].items()
    }


def api_version(toolkit: str) -> int:
    """What cuptiGetVersion says in a toolkit."""
    known = _BEFORE_WHEELS.get(toolkit)
    return known[0] if known else LAYOUTS["toolkits"][toolkit]["api_version"]


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("correlation_id", ctypes.c_uint32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("registers_per_thread", ctypes.c_uint32),
        ("static_shared_bytes", ctypes.c_int32),
        ("dynamic_shared_bytes", ctypes.c_int32),
        ("graph", ctypes.c_uint32),
        ("graph_node", ctypes.c_uint64),
    ]


# Arguments of the double's functions, as fake_cupti*.cpp declare them: i has 32 bits, q 64; p is a
# pointer, s a text.
_TYPES = {"i": ctypes.c_uint32, "q": ctypes.c_uint64, "p": ctypes.c_void_p, "s": ctypes.c_char_p}
ARGUMENTS = {
    "fake_copy": "iiqqqiiiiii",
    "fake_set": "qqqiiii",
    "fake_allocation": "iqqqiii",
    "fake_call": "iiqqiii",
}
ARGUMENTS |= {
    "fake_wait": "iqqii",
    "fake_overhead": "iqq",
    "fake_device": "is",
    "fake_environment": "iiqiii",
}
ARGUMENTS |= {"fake_emit_many": "iqip", "fake_graph_node": "qq", "fake_finish_kernels": "q"}
ARGUMENTS |= {"fake_set_record_bytes": "iq"}


class FakeGpu:
    """A GPU that the program plays: `start` is cuInit, the other methods are records that CUPTI
    would give.
    """

    GET_DEVICE, LAUNCH_KERNEL, MEMCPY_ASYNC, STREAM_SYNCHRONIZE, MALLOC, GRAPH_LAUNCH = range(1, 7)
    CU_CTX_GET_CURRENT, CU_LAUNCH_KERNEL, CU_MEMCPY_H_TO_D = range(1, 4)

    def __init__(self, toolkit: str = "12.9") -> None:
        os.environ["FAKE_CUPTI_VERSION"] = str(api_version(toolkit))
        # ctypes' setter does not reach the C environment of libraries loaded before; os.environ
        # does.
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cupti = ctypes.CDLL(os.environ["FAKE_CUPTI"])
        self.cupti.fake_cupti_now.restype = ctypes.c_uint64
        for function, widths in ARGUMENTS.items():
            getattr(self.cupti, function).argtypes = [_TYPES[width] for width in widths]
        for kind, struct in structs(toolkit).items():
            size = LAYOUTS["structs"][struct]["bytes"]
            for number in ("runtime", "driver") if kind == "api" else (kind,):
                self.cupti.fake_set_record_bytes(KIND_NUMBERS[number], size)

    def start(self) -> int:
        return self.cuda.cuInit(0)

    def now(self) -> int:
        """CUPTI's clock."""
        return self.cupti.fake_cupti_now()

    def kernel(self, name: str, start_ns: int, end_ns: int, correlation_id: int, **fields) -> None:
        grid, block = fields.pop("grid", (1, 1, 1)), fields.pop("block", (1, 1, 1))
        record = _Kernel(name.encode(), start_ns, end_ns, correlation_id=correlation_id, **fields)
        record.grid[:], record.block[:] = grid, block
        self.cupti.fake_kernel(ctypes.byref(record))

    def copy(
        self,
        kind,
        size,
        start_ns,
        end_ns,
        correlation_id,
        *,
        device=0,
        stream=0,
        graph=0,
        peer=0,
        source=0,
        destination=0,
    ) -> None:
        """A copy; `source` and `destination` are numbers of kinds of memory, 0 if unknown."""
        place = device, stream, correlation_id, graph, source, destination
        self.cupti.fake_copy(peer, kind, size, start_ns, end_ns, *place)

    def set(self, size, start_ns, end_ns, correlation_id, *, device=0, stream=0, graph=0) -> None:
        self.cupti.fake_set(size, start_ns, end_ns, device, stream, correlation_id, graph)

    def allocation(
        self, address, size, time_ns, correlation_id, *, release=0, device=0, stream=0
    ) -> None:
        self.cupti.fake_allocation(release, address, size, time_ns, device, stream, correlation_id)

    def call(
        self, number, start_ns, end_ns, thread, correlation_id, *, driver=0, returned=0
    ) -> None:
        self.cupti.fake_call(driver, number, start_ns, end_ns, thread, correlation_id, returned)

    def wait(self, kind, start_ns, end_ns, stream, correlation_id) -> None:
        self.cupti.fake_wait(kind, start_ns, end_ns, stream, correlation_id)

    def overhead(self, kind, start_ns, end_ns) -> None:
        self.cupti.fake_overhead(kind, start_ns, end_ns)

    def device(self, device: int, name: str) -> None:
        self.cupti.fake_device(device, name.encode())

    def environment(self, device, kind, time_ns, first, second=0, reasons=0) -> None:
        self.cupti.fake_environment(device, kind, time_ns, first, second, reasons)

    def emit_many(self, threads: int, per_thread: int, names: int = 100) -> None:
        self.cupti.fake_emit_many(threads, per_thread, names, None)

    def replay(self, path: str) -> int:
        """Hands over the buffers of a file that CURVESCOPE_RAW_BUFFERS kept; how many records they
        hold.
        """
        from curvescope.profiling.collect.chunks import read_chunks

        kept = read_chunks(Path(path))
        calls, texts = kept.table("raw_calls"), kept.table("raw_names")
        if calls.rows:
            for driver, number, name in zip(
                *(calls[c].tolist() for c in ("is_driver", "id", "name")), strict=True
            ):
                self.cupti.fake_name_call(driver, number, kept.names[name].encode())
        addresses = texts["address"].tolist() if texts.rows else []
        names = [kept.names[name].encode() for name in texts["name"].tolist()] if texts.rows else []
        count = len(names)
        for buffer in kept.raw:
            self.cupti.fake_replay(
                buffer.data,
                ctypes.c_size_t(len(buffer.data)),
                buffer.offsets.tobytes(),
                ctypes.c_uint32(len(buffer.offsets)),
                (ctypes.c_uint64 * count)(*addresses),
                (ctypes.c_char_p * count)(*names),
                ctypes.c_uint32(count),
            )
        return sum(len(buffer.offsets) for buffer in kept.raw)

    def graph_node(self, node: int, original: int = 0) -> None:
        """A node of a CUDA graph that this thread captures, or a clone of another node."""
        self.cupti.fake_graph_node(node, original)

    def finish_kernels(self, end_ns: int) -> None:
        """End all kernels that were emitted without an end."""
        self.cupti.fake_finish_kernels(end_ns)

    def flush(self) -> None:
        self.cupti.cuptiActivityFlushAll(0)


def launch(
    gpu: FakeGpu, name: str, correlation_id: int, thread: int, duration_ns: int = 1000, **fields
) -> None:
    """A launch that takes 2 us from now on CUPTI's clock, and its kernel 3 us after its begin."""
    now = gpu.now()
    gpu.call(gpu.LAUNCH_KERNEL, now, now + 2000, thread, correlation_id)
    gpu.kernel(name, now + 3000, now + 3000 + duration_ns, correlation_id, **fields)
    time.sleep(0)
