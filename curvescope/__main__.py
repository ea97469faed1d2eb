"""`python -m curvescope`, as launchers such as torchrun start it."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
