// The virtual time itself, for those that make the host live in it. All but `is_virtual` and `real_now` only where it
// is.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace card {

using Ns = std::int64_t;

constexpr Ns kReadingNs = 20;  // a reading of a clock

constexpr int kMostProcesses = 256;
constexpr int kMostWaits = 1024;
constexpr int kMostDevices = 16;

struct WaitingThread {
  std::atomic<int> process;  // 0: nobody
  std::atomic<int> thread;
  std::atomic<Ns> limit;
};

// The file that the processes of a test share; card.py writes the first three.
struct SharedState {
  std::atomic<Ns> elapsed;
  Ns monotonic_base, realtime_base;
  std::atomic<int> processes[kMostProcesses];  // those that live in a virtual time
  WaitingThread waits[kMostWaits];
  std::atomic<double> locked_hz[kMostDevices];  // clocks that somebody locked through NVML; 0: none
  std::atomic<std::uint64_t> drawn;             // numbers of noise so far
};

SharedState& shared();  // where no card was chosen, of this process alone

bool is_virtual();
Ns real_now();
Ns elapsed();              // since the test began
Ns advance(Ns by);         // what the host spends; returns what is elapsed then
void advance_to(Ns when);  // what it waits
Ns spent_by_process();
Ns monotonic_base();  // CLOCK_MONOTONIC when the test began
Ns realtime_base();
void join(int process);  // one that lives in this time from now on

// A wait of this thread with a limit, of which all processes know (waits.cpp).
class Wait {
 public:
  explicit Wait(Ns limit);  // on `elapsed`
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  bool is_over() const { return elapsed() >= limit_; }
  // Moves the time to the end of the first wait, if nothing has happened in the test since the last call.
  void jump_if_idle();

 private:
  Ns limit_;
  WaitingThread* own_ = nullptr;
  std::uint64_t seen_ = 0;  // 0: somebody ran
};

// From now on the processor's counter of cycles tells the virtual time, a cycle for each nanosecond.
void trap_cycle_counter();

}  // namespace card
