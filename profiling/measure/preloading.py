"""Libraries that the server of processes loads because this process has: a step need not load them
in each process.

Loading them takes a second or two of every start. They start no thread and open no device, as
neither survives a fork; where there is a GPU, some of them look at it, so there the server loads
none. The server also removes the folder of its socket if this process was killed and could not.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import util

# Not those that Curvescope itself loads: most steps need none of them, and the others load what
# they build on.
LIBRARIES = (
    "transformers",
    "timm",
    "diffusers",
    "torch_geometric",
    "torchvision",
    "torchaudio",
    "lightning",
    *("sklearn", "tensorboard"),
)
_NAMES = "CURVESCOPE_PRELOADED"
_FOLDER = "CURVESCOPE_SERVER_FOLDER"
_MOST_CHARACTERS = 100_000  # Linux takes no variable of more than 128 KiB


@contextmanager
def name_loaded_modules() -> Iterator[None]:
    """Name the loaded modules of these libraries, in the order of their loading, to a server that
    starts meanwhile.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        loaded = (name for name in [*sys.modules] if name.partition(".")[0] in LIBRARIES)
        os.environ[_NAMES] = " ".join(loaded)[:_MOST_CHARACTERS]
    os.environ[_FOLDER] = util.get_temp_dir()
    try:
        yield
    finally:
        os.environ.pop(_NAMES, None)
        os.environ.pop(_FOLDER, None)


# The server imports this module; nobody else has the variables.
if _folder := os.environ.pop(_FOLDER, None):
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)  # it ends after all who use it
_names = os.environ.pop(_NAMES, "").split()
if _names:
    os.dup2(2, 1)  # what libraries print is no result
for _name in _names:
    with suppress(Exception):  # a library's own module, which its step may not need
        import_module(_name)
