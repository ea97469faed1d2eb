#!/usr/bin/env bash
# Builds the native library and its tests with sanitizers, and runs them: AddressSanitizer with
# UndefinedBehaviorSanitizer, then ThreadSanitizer. Needs CMake on PATH or in .venv. An argument is the kernels that each
# of three threads emits: 3400000 for ten million in all.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake=$(command -v cmake || realpath -s .venv/bin/cmake)
python=$(realpath -s "${PYTHON:-.venv/bin/python}")  # has the headers of NVTX and CUPTI, by the dev extra
# Not leaks: the collector's state outlives the process on purpose, and a forked child drops its parent's unfreed.
export ASAN_OPTIONS=detect_leaks=0
# A process with threads may fork here: the child runs on with the one thread it has, as the collector must.
export TSAN_OPTIONS="die_after_fork=0 halt_on_error=1"
for preset in address thread; do
  (cd native && "$cmake" --preset "$preset" -DPython3_EXECUTABLE="$python" >/dev/null)
  "$cmake" --build "build/sanitized-$preset" --parallel 2 >/dev/null
  "build/sanitized-$preset/curvescope_native_test" "$@"
done
