"""The variables of the tests' process, set before the libraries are loaded that read them once.

`conftest.py` imports this module before all others.
"""

import atexit
import os
import shutil
import tempfile

from curvescope.base.torch_runtime import prepare_libraries

# One thread in every library, here and in processes that tests start: threads of one operator wait
# for each other, and on a machine that does other work as well they spend most of the time waiting.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # whatever the shell of the user says

# A test that uses torch by itself must not be the first to load it: oneDNN's log would have no
# times from then on.
prepare_libraries()

# A test's measurements are named by no other test: each worker has a register of its own.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="curvescope-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

# What Inductor compiled for this run alone; its usual folder has what others of this machine
# compiled.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="curvescope-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
