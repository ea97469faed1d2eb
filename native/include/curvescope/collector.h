// The C boundary of the collector: everything that Python reaches through profiling/native.py.
#pragma once

#include <cstdint>

#define CURVESCOPE_API extern "C" __attribute__((visibility("default")))

// Nanoseconds of CLOCK_MONOTONIC, the host clock that every recorded time is aligned to.
CURVESCOPE_API std::int64_t curvescope_clock_ns() noexcept;
