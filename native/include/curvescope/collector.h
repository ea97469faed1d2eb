// The C boundary of the collector: everything that Python reaches through profiling/native.py.
#pragma once

#include <cstdint>

#define CURVESCOPE_API extern "C" __attribute__((visibility("default")))

// Nanoseconds of CLOCK_MONOTONIC, the host clock that every recorded time is aligned to.
CURVESCOPE_API std::int64_t curvescope_clock_ns() noexcept;

// Records this process into chunk files in the folder, until it is stopped. 0 where it is being recorded already, or
// no memory is left.
CURVESCOPE_API int curvescope_record_start(const char* folder) noexcept;

// Ends the recording; when this returns, everything is in the folder.
CURVESCOPE_API void curvescope_record_stop() noexcept;

// Lets another client of CUPTI in this process collect, which the caller is about to start: writes all GPU records so
// far and collects none until it resumes. Both give 1 if the collection changed.
CURVESCOPE_API int curvescope_cupti_pause() noexcept;
CURVESCOPE_API int curvescope_cupti_resume() noexcept;

// Whether the next recording collects GPU work though another client of CUPTI is subscribed, which the caller knows to
// be idle until the recording ends or pauses.
CURVESCOPE_API void curvescope_cupti_share(int other_is_idle) noexcept;

// For the CUDA driver, which calls it in the library that CUDA_INJECTION64_PATH names.
CURVESCOPE_API int InitializeInjection() noexcept;
