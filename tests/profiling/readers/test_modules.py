"""What an import of a profile loads: a small file is read sooner than the large packages start."""

import subprocess
import sys

import pytest

from .made_profiles import PROFILES

PROFILE = PROFILES / "hta_alexnet_trace.json.gz"


UNUSED = {
    "torch",
    "scipy",
    "nvtx",
    "pynvml",
    "distributed",
    "adbc_driver_sqlite",
    "google",
}


COMMAND = "from curvescope.cli import main; main(sys.argv[1:])"
READING = """
from curvescope.base.arrow_alone import start_without_pandas
start_without_pandas()
from curvescope.profiling.readers import import_profile
import_profile(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def loaded(*arguments, code=COMMAND):
    code = f"import sys\nfrom pathlib import Path\n{code}\nprint(*sys.modules)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.slow
def test_an_import_and_a_breakdown_load_no_package_that_they_do_not_use(tmp_path):
    """A profile is read and recorded without pandas; the advice that `import` prints
    then needs it.
    """
    readers = {"curvescope.profiling.readers.nsight_reports"}
    modules = loaded(PROFILE, tmp_path / "read", code=READING)
    assert "msgspec" in modules
    assert not modules & (UNUSED | {"pandas", *readers})
    modules = loaded("import", PROFILE, "-o", tmp_path / "recording")
    assert "pandas" in modules
    assert not modules & (UNUSED | readers)
    modules = loaded("breakdown", tmp_path / "recording")
    assert "pandas" in modules
    assert not modules & UNUSED


@pytest.mark.slow
def test_arrow_finds_pandas_when_it_is_asked_for_a_frame():
    code = """
import sys
from curvescope.base.arrow_alone import start_without_pandas
start_without_pandas()
import pyarrow as pa
table = pa.table({"a": pa.array([1.0, None])})
assert "pandas" not in sys.modules
frame = table.to_pandas()
assert pa.array(frame["a"]).null_count == 1  # a Series again, whose NaN is null
"""
    subprocess.run([sys.executable, "-c", code], check=True)
