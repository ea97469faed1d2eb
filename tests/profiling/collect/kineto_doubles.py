"""Doubles of what torch's profiler returns, made of a trace that a real one wrote.

`External id` of device work and of API calls is the number that torch gave the operator around the
launch, which is `linked_correlation_id()` in the process.
"""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LINKED = (*_ON_DEVICE, "cuda_runtime", "cuda_driver")
_USER_SCOPE = 7


class KinetoEvent:
    """One event of a trace whose times are ns, with the methods of torch's `_KinetoEvent` that
    Curvescope calls.
    """

    def __init__(self, event):
        args, on_device, linked = (
            event.get("args", {}),
            event["cat"] in _ON_DEVICE,
            event["cat"] in _LINKED,
        )
        is_range = event["cat"] == "user_annotation"
        self.values = {
            "device_type": SimpleNamespace(name="CUDA" if on_device else "CPU"),
            "name": event["name"],
            "start_ns": round(event["ts"] * 1000),
            "duration_ns": round(event["dur"] * 1000),
            "start_thread_id": 0 if linked else event["tid"],
            "device_index": args.get("device", 0),
            "device_resource_id": event["tid"],
            "correlation_id": args.get("correlation" if linked else "External id", 0),
            "linked_correlation_id": args.get("External id", 0) if linked else 0,
            "is_user_annotation": is_range,
            "scope": _USER_SCOPE if is_range else 0,
            "sequence_nr": args.get("Sequence number", -1),
            "fwd_thread_id": args.get("Fwd thread id", 0),
            "shapes": args.get("Input Dims", []),
            "structured_input_shapes": args.get("Input Dims", []),
            "structured_input_strides": args.get("Input Strides", []),
            "concrete_inputs": args.get("Concrete Inputs", []),
            "dtypes": args.get("Input type", []),
            "metadata_json": json.dumps(args)[1:-1],
        }

    def __getattr__(self, name):
        if name not in self.values:
            raise AttributeError(name)
        return lambda: self.values[name]


class OldKinetoEvent(KinetoEvent):
    """An event of a torch that gives no metadata."""

    def metadata_json(self):
        return ""


class KinetoResults:
    """What `profile.kineto_results` is, of a trace (JSON, packed by gzip)."""

    def __init__(self, path, event_type=KinetoEvent):
        self._document = json.loads(gzip.decompress(path.read_bytes()))
        kinds = (*_LINKED, "cpu_op", "user_annotation")
        events = (
            event
            for event in self._document["traceEvents"]
            if event["ph"] == "X" and event["cat"] in kinds
        )
        self._events = [event_type(event) for event in events]

    def events(self):
        return self._events

    def experimental_event_tree(self):
        return []

    def save(self, path):
        Path(path).write_text(json.dumps(self._document))
