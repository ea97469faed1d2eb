// The card's time: the host's own, or a virtual one that only the card moves.
#include <time.h>
#include <unistd.h>

#include "card.h"

namespace card {

namespace {

constexpr Ns kSpun = 60'000;  // the kernel wakes a sleeping thread some 50 us late

Ns monotonic() {
  timespec read{};
  clock_gettime(CLOCK_MONOTONIC, &read);
  return Ns{read.tv_sec} * 1'000'000'000 + read.tv_nsec;
}

}  // namespace

Ns now() { return monotonic(); }

void wait_until(Ns when) {
  for (;;) {
    const Ns left = when - now();
    if (left <= 0) return;
    if (left > kSpun) {
      const Ns asleep = left - kSpun;
      const timespec span{static_cast<time_t>(asleep / 1'000'000'000), static_cast<long>(asleep % 1'000'000'000)};
      nanosleep(&span, nullptr);
    }
  }
}

void spend(double host_ns) {
  constexpr double kOwn = 20'000;  // what is shorter, the call takes anyway
  if (host_ns >= kOwn) wait_until(now() + static_cast<Ns>(host_ns));
}

}  // namespace card
