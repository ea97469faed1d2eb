#!/usr/bin/env bash
# Builds the native library and its tests with sanitizers, and runs them. Needs CMake on PATH or in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake=$(command -v cmake || echo .venv/bin/cmake)
"$cmake" -S native -B build/sanitized -DCMAKE_BUILD_TYPE=Debug -DCURVESCOPE_TESTS=ON \
  -DCURVESCOPE_SANITIZE=address,undefined >/dev/null
"$cmake" --build build/sanitized --parallel 2 >/dev/null
build/sanitized/curvescope_native_test
