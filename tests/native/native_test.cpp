// Tests of the C boundary. Prints each failed check and ends with their number.
#include <cstdio>
#include <ctime>

#include "curvescope/collector.h"

namespace {

int failures = 0;

void check(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void clock_lies_between_two_readings_of_the_monotonic_clock() {
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t before = monotonic_ns();
    const std::int64_t read = curvescope_clock_ns();
    const std::int64_t after = monotonic_ns();
    check(before <= read && read <= after, "before <= curvescope_clock_ns() <= after");
  }
}

}  // namespace

int main() {
  clock_lies_between_two_readings_of_the_monotonic_clock();
  std::printf("native: %s\n", failures == 0 ? "all checks hold" : "checks failed");
  return failures == 0 ? 0 : 1;
}
