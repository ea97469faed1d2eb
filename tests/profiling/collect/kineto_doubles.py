"""Doubles of what torch's profiler returns, made of a trace that a real one wrote.

`External id` of device work and of API calls is the number that torch gave the operator around the launch, which is
`linked_correlation_id()` in the process.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_USER_SCOPE = 7


class KinetoEvent:
    """One event, with the methods of torch's `_KinetoEvent` that Curvescope calls.

    Attributes:
        args: metadata of the event.
    """

    def __init__(self, event: dict) -> None:
        """Take an event of a trace whose times are nanoseconds."""
        self.args = event.get("args", {})
        self._event = event
        self._linked = event["cat"] in (*_ON_DEVICE, *_CALLS)

    def device_type(self):
        return SimpleNamespace(name="CUDA" if self._event["cat"] in _ON_DEVICE else "CPU")

    def name(self):
        return self._event["name"]

    def start_ns(self):
        return self._event["start_ns"]

    def duration_ns(self):
        return self._event["duration_ns"]

    def start_thread_id(self):
        return 0 if self._linked else self._event["tid"]

    def device_index(self):
        return self.args.get("device", 0)

    def device_resource_id(self):
        return self._event["tid"]

    def correlation_id(self):
        return self.args.get("correlation" if self._linked else "External id", 0)

    def linked_correlation_id(self):
        return self.args.get("External id", 0) if self._linked else 0

    def is_user_annotation(self):
        return self._event["cat"] == "user_annotation"

    def scope(self):
        return _USER_SCOPE if self.is_user_annotation() else 0

    def sequence_nr(self):
        return self.args.get("Sequence number", -1)

    def fwd_thread_id(self):
        return self.args.get("Fwd thread id", 0)

    def shapes(self):
        return self.args.get("Input Dims", [])

    structured_input_shapes = shapes

    def structured_input_strides(self):
        return self.args.get("Input Strides", [])

    def concrete_inputs(self):
        return self.args.get("Concrete Inputs", [])

    def dtypes(self):
        return self.args.get("Input type", [])

    def metadata_json(self):
        return json.dumps(self.args)[1:-1]


class OldKinetoEvent(KinetoEvent):
    """An event of a torch that gives no metadata."""

    def metadata_json(self):
        return ""


class KinetoResults:
    """What `profile.kineto_results` is."""

    def __init__(self, path: Path, event_type: type[KinetoEvent] = KinetoEvent) -> None:
        """Read a trace (JSON, packed by gzip)."""
        self._document = json.loads(gzip.decompress(path.read_bytes()))
        self._events = [
            event_type({**event, "start_ns": round(event["ts"] * 1000), "duration_ns": round(event["dur"] * 1000)})
            for event in self._document["traceEvents"]
            if event["ph"] == "X" and event["cat"] in (*_ON_DEVICE, *_CALLS, "cpu_op", "user_annotation")
        ]

    def events(self):
        return self._events

    def experimental_event_tree(self):
        return []

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps(self._document))
