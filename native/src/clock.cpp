#include <ctime>

#include "curvescope/collector.h"

CURVESCOPE_API std::int64_t curvescope_clock_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}
