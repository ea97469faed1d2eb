"""The exit code of a script of the campaign: 2 where a package or device is missing, as the command line has it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from curvescope.base.errors import CurvescopeError


def run(main: Callable[[], int]) -> None:
    """Run a script to its end."""
    try:
        sys.exit(main())
    except CurvescopeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
