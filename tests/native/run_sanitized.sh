#!/usr/bin/env bash
# Builds the native library and its tests with sanitizers, and runs them. Needs CMake on PATH or in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake=$(command -v cmake || echo .venv/bin/cmake)
python=${PYTHON:-.venv/bin/python}  # has the NVTX headers, by the dev extra
"$cmake" -S native -B build/sanitized -DPython3_EXECUTABLE="$(realpath -s "$python")" \
  -DCMAKE_BUILD_TYPE=Debug -DCURVESCOPE_TESTS=ON -DCURVESCOPE_SANITIZE=address,undefined >/dev/null
"$cmake" --build build/sanitized --parallel 2 >/dev/null
# Not leaks: the collector's state outlives the process on purpose, and a forked child drops its parent's unfreed.
ASAN_OPTIONS=detect_leaks=0 build/sanitized/curvescope_native_test
