#!/usr/bin/env bash
# Fetches NVIDIA's own libraries, with which tests/native/test_real_libraries.py runs the collector on a machine without a
# GPU: from PyPI libcupti of four toolkits, with the host half of its profiler, and from Debian's non-free section the
# driver library. They go to build/real and nowhere else. What cannot be fetched is named, and its tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
mkdir -p build/real && cd build/real

for wheel in nvidia-cuda-cupti-cu11==11.8.87 nvidia-cuda-cupti-cu12==12.1.105 nvidia-cuda-cupti-cu12==12.8.90 \
  nvidia-cuda-cupti==13.0.85; do
  version=${wheel##*=}
  [ -e "cupti-$version/libnvperf_host.so" ] && continue
  if "$python" -m pip download --quiet --no-deps --dest "wheel-$version" "$wheel"; then
    "$python" -m zipfile -e "wheel-$version"/*.whl "whole-$version"
    mkdir -p "cupti-$version"
    find "whole-$version" \( -name 'libcupti.so.*' -o -name libnvperf_host.so \) -exec mv {} "cupti-$version" \;
  else
    echo "$wheel could not be fetched"
  fi
  rm -rf "wheel-$version" "whole-$version"
done

if [ ! -e driver/libcuda.so.1 ]; then
  # A private list: the machine's own package sources stay as they are.
  mkdir -p apt/lists/partial apt/cache/archives/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm non-free" \
    >apt/sources.list
  options=(-o "Dir::Etc::sourcelist=$PWD/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o APT::Sandbox::User=root)
  if apt-get "${options[@]}" -qq update && apt-get "${options[@]}" -qq download libcuda1 &&
    dpkg-deb -x libcuda1_*.deb apt/unpacked; then
    mkdir -p driver && cp "$(find apt/unpacked -name 'libcuda.so.*.*' -type f)" driver/libcuda.so.1
  else
    echo "Debian's libcuda1 could not be fetched"
  fi
  rm -rf apt libcuda1_*.deb
fi
