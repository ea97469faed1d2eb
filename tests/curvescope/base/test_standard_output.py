"""What a user's code prints goes to standard error, from Python, C and other processes."""

import subprocess
import sys

SCRIPT = """
import ctypes, subprocess, sys
from curvescope.base.standard_output import prints_to_stderr

print("before")
with prints_to_stderr():
    print("python")
    ctypes.CDLL(None).puts(b"c")
    subprocess.run([sys.executable, "-c", "print('child')"])
print("after")
"""


def test_prints_of_the_block_go_to_standard_error():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["before", "after"]
    assert sorted(ran.stderr.split()) == ["c", "child", "python"]


def test_a_closed_standard_output_is_no_error():
    script = f"import os, sys; os.close(1); sys.stdout = sys.stderr\n{SCRIPT}"
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
