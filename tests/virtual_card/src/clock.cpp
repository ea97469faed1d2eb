// The card's time: the host's own, or a virtual one, which all processes of a test share.
//
// The virtual time stands still while the host works. It moves by what calls cost (`Costs`), by what the card takes
// where the host waits for it, and by a little with each reading, so that a loop that waits for a time ends. Where a
// program sleeps, it comes when nothing else runs: see host_time.cpp. It so depends on nothing but the program and the
// card.
#include "clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "card.h"

namespace card {

namespace {

constexpr Ns kSpun = 60'000;  // the kernel wakes a sleeping thread some 50 us late
enum class Mode { kUndecided, kReal, kVirtual };
std::atomic<Mode> mode{Mode::kUndecided};
std::atomic<Ns> spent{0};  // by this process

SharedState* map_shared() {
  const std::string& path = config().shared_file;
  if (path.empty()) return new SharedState();  // never freed, as what is mapped
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* mapped =
      file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    std::fprintf(stderr, "virtual card: there is no shared file at %s\n", path.c_str());
    std::_Exit(70);
  }
  close(file);
  return static_cast<SharedState*>(mapped);
}

Mode decide() {
  if (std::getenv("VIRTUAL_CARD") == nullptr) return Mode::kReal;  // not for good: a fork may get one
  if (!config().virtual_time) return mode = Mode::kReal;
  join(getpid());
  pthread_atfork(nullptr, nullptr, [] { join(getpid()); });
  trap_cycle_counter();
  return mode = Mode::kVirtual;
}

}  // namespace

SharedState& shared() {
  static SharedState& mapped = *map_shared();
  return mapped;
}

bool is_virtual() {
  const Mode known = mode.load(std::memory_order_relaxed);
  return (known == Mode::kUndecided ? decide() : known) == Mode::kVirtual;
}

Ns real_now() {
  timespec read{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &read);
  return Ns{read.tv_sec} * 1'000'000'000 + read.tv_nsec;
}

Ns elapsed() { return shared().elapsed.load(std::memory_order_relaxed); }

Ns advance(Ns by) {
  spent.fetch_add(by, std::memory_order_relaxed);
  return shared().elapsed.fetch_add(by, std::memory_order_relaxed) + by;
}

void advance_to(Ns when) {
  Ns seen = shared().elapsed;
  while (seen < when && !shared().elapsed.compare_exchange_weak(seen, when)) {
  }
}

Ns spent_by_process() { return spent; }

Ns monotonic_base() { return shared().monotonic_base; }

Ns realtime_base() { return shared().realtime_base; }

Ns now() { return is_virtual() ? monotonic_base() + advance(kReadingNs) : real_now(); }

void wait_until(Ns when) {
  if (is_virtual()) {
    advance_to(when - monotonic_base());
    return;
  }
  for (;;) {
    const Ns left = when - real_now();
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
  if (is_virtual()) {
    advance(static_cast<Ns>(host_ns));
  } else if (host_ns >= kOwn) {
    wait_until(real_now() + static_cast<Ns>(host_ns));
  }
}

}  // namespace card
