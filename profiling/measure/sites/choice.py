"""The site of what a configuration describes."""

from __future__ import annotations

from ..configuration import Configuration
from .command import Command
from .here import Here
from .process import Rounds
from .site import SweptSite


def site_of(
    configuration: Configuration, *, find_device: bool, in_rounds: bool = False
) -> SweptSite:
    """The place where the steps of a configuration run.

    With `in_rounds`, short steps are timed in a process of each round; `find_device` is as of
    `Configuration.build`.
    """
    if configuration.program is not None:
        return Command.of(configuration)
    workload = configuration.build(find_device)
    return Rounds(workload) if in_rounds else Here(workload)
