"""Measurers that make their visits up, for what a sweep does around them."""

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.machine import Machine
from curvescope.profiling.measure.visits import Visit

CARD = {"kind": "cuda", "name": "Fake 100", "cudnn": 91002}


def machine(identity="a", device=CARD, cpu="Some CPU", torch="2.13.0"):
    unknown = dict.fromkeys(
        ("device_settings", "ceilings", "cudnn_workspace_limit_mib", "clocks_missing")
    )
    host, versions = {"cpu": cpu, "usable_cores": 8}, {"torch": torch}
    return Machine(device=dict(device), host=host, versions=versions, identity=identity, **unknown)


class FakeMeasurer:
    """Steps of batch milliseconds; dies for good before visit `lost_at`, or goes on elsewhere from
    `moves_at`.
    """

    def __init__(self, place=None, lost_at=None, moves_at=None):
        self.machine = place or machine()
        self.visited = []
        self._lost_at, self._moves_at = lost_at, moves_at

    def describe(self, device):
        return self.machine

    def visit(self, configuration, batch, how):
        if len(self.visited) == self._lost_at:
            raise CurvescopeError("the worker ended")
        if len(self.visited) == self._moves_at:
            self.machine = machine("successor")
        self.visited.append((configuration.label, batch))
        return Visit([{"start_ns": 0, "duration_ns": batch * 1_000_000}], clocks=[{"start_ns": 0}])

    def fits(self, configuration, batch):
        return batch <= 4

    def stop(self):
        pass

    def done(self):
        pass
