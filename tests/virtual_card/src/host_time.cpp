// The host under a virtual time: the C library's clocks, its waits, and what it counts of the process.
//
// A wait with a limit ends when what it waits for is there, or when the virtual time has come. That moves only by what
// programs do; so where no thread of the test runs, nothing will move it, and it jumps to the end of the first wait.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "clock.h"
#include "next.h"

namespace card {

namespace {

constexpr Ns kSecond = 1'000'000'000;
constexpr Ns kSlice = 500'000;  // of the host's time, between two looks

timespec in_timespec(Ns ns) { return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)}; }

Ns in_ns(const timespec& time) { return Ns{time.tv_sec} * kSecond + time.tv_nsec; }

Ns base_of(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? realtime_base() : monotonic_base();
}

// Waits for at most a slice of the host's time until `try_for` says that what it waits for is there; false at the
// limit.
template <typename TryFor>
bool wait_virtually(Ns limit, TryFor try_for) {
  Wait wait(limit);
  for (;;) {
    if (try_for(wait.is_over() ? 0 : kSlice)) return true;
    if (wait.is_over()) return false;
    wait.jump_if_idle();
  }
}

void sleep_for(Ns ns) {
  wait_virtually(elapsed() + ns, [](Ns slice) {
    const timespec span = in_timespec(slice);
    if (slice > 0) syscall(SYS_nanosleep, &span, nullptr);
    return false;
  });
}

timespec real_deadline(clockid_t clock, Ns slice) {
  timespec read{};
  syscall(SYS_clock_gettime, clock, &read);
  return in_timespec(in_ns(read) + slice);
}

// A wait of the C library until a time of a clock.
template <typename Wait>
int wait_until_time(clockid_t clock, const timespec* deadline, Wait wait) {
  int result = 0;
  const bool done = wait_virtually(in_ns(*deadline) - base_of(clock), [&](Ns slice) {
    const timespec until = real_deadline(clock, slice);
    result = wait(&until);
    return result != ETIMEDOUT;
  });
  return done ? result : ETIMEDOUT;
}

int semaphore_error(int result) { return result == 0 ? 0 : errno; }

int as_semaphore(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Waits for descriptors, which a call tells of at once: `look` takes milliseconds, and returns as poll does.
template <typename Look>
int wait_for_descriptors(int timeout_ms, Look look) {
  int result = 0;
  wait_virtually(elapsed() + Ns{timeout_ms} * 1'000'000, [&](Ns slice) {
    result = look(slice > 0 ? 1 : 0);
    return result != 0;
  });
  return result;
}

}  // namespace

}  // namespace card

using card::elapsed;
using card::is_virtual;
using card::next_of;
using card::Ns;

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (!is_virtual()) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  const Ns read = card::advance(card::kReadingNs);
  const bool is_of_process = clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID || clock < 0;
  *time = card::in_timespec(is_of_process ? card::spent_by_process() : card::base_of(clock) + read);
  return 0;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  if (!is_virtual()) return static_cast<int>(syscall(SYS_gettimeofday, time, zone));
  const Ns read = card::realtime_base() + card::advance(card::kReadingNs);
  *time = {static_cast<time_t>(read / card::kSecond), static_cast<suseconds_t>(read % card::kSecond / 1000)};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec read{};
  clock_gettime(CLOCK_REALTIME, &read);
  if (out != nullptr) *out = read.tv_sec;
  return read.tv_sec;
}

int nanosleep(const timespec* span, timespec* left) {
  if (!is_virtual()) return static_cast<int>(syscall(SYS_nanosleep, span, left));
  card::sleep_for(card::in_ns(*span));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* span, timespec* left) {
  if (!is_virtual()) {
    return syscall(SYS_clock_nanosleep, clock, flags, span, left) == 0 ? 0 : errno;
  }
  const Ns asked = card::in_ns(*span);
  card::sleep_for((flags & TIMER_ABSTIME) != 0 ? asked - card::base_of(clock) - elapsed() : asked);
  return 0;
}

int usleep(useconds_t us) {
  const timespec span = card::in_timespec(Ns{us} * 1000);
  return nanosleep(&span, nullptr);
}

unsigned int sleep(unsigned int seconds) {
  const timespec span{static_cast<time_t>(seconds), 0};
  nanosleep(&span, nullptr);
  return 0;
}

int poll(pollfd* files, nfds_t count, int timeout_ms) {
  const auto next = next_of(&poll, "poll");
  if (timeout_ms <= 0 || !is_virtual()) return next(files, count, timeout_ms);
  return card::wait_for_descriptors(timeout_ms, [&](int ms) { return next(files, count, ms); });
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  const auto next = next_of(&epoll_wait, "epoll_wait");
  if (timeout_ms <= 0 || !is_virtual()) return next(epoll, events, most, timeout_ms);
  return card::wait_for_descriptors(timeout_ms, [&](int ms) { return next(epoll, events, most, ms); });
}

int select(int count, fd_set* readable, fd_set* writable, fd_set* failed, timeval* limit) {
  const auto next = next_of(&select, "select");
  if (limit == nullptr || !is_virtual()) return next(count, readable, writable, failed, limit);
  fd_set* const sets[] = {readable, writable, failed};
  fd_set asked[3];
  for (int i = 0; i < 3; ++i) {
    if (sets[i] != nullptr) asked[i] = *sets[i];
  }
  const auto ms = static_cast<int>(Ns{limit->tv_sec} * 1000 + (limit->tv_usec + 999) / 1000);
  return card::wait_for_descriptors(ms, [&](int slice_ms) {
    for (int i = 0; i < 3; ++i) {
      if (sets[i] != nullptr) *sets[i] = asked[i];
    }
    timeval slice{0, slice_ms * 1000};
    return next(count, readable, writable, failed, &slice);
  });
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* deadline) {
  const auto next = next_of(&sem_clockwait, "sem_clockwait");
  if (!is_virtual()) return next(semaphore, clock, deadline);
  return card::as_semaphore(card::wait_until_time(
      clock, deadline, [&](const timespec* until) { return card::semaphore_error(next(semaphore, clock, until)); }));
}

int sem_timedwait(sem_t* semaphore, const timespec* deadline) {
  const auto next = next_of(&sem_timedwait, "sem_timedwait");
  if (!is_virtual()) return next(semaphore, deadline);
  return card::as_semaphore(card::wait_until_time(
      CLOCK_REALTIME, deadline, [&](const timespec* until) { return card::semaphore_error(next(semaphore, until)); }));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  const auto next = next_of(&pthread_cond_clockwait, "pthread_cond_clockwait");
  if (!is_virtual()) return next(condition, mutex, clock, deadline);
  return card::wait_until_time(clock, deadline,
                               [&](const timespec* until) { return next(condition, mutex, clock, until); });
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* deadline) {
  const auto next = next_of(&pthread_cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!is_virtual()) return next(condition, mutex, deadline);
  // The condition has its clock since it was made; the monotonic one began when the machine did.
  const clockid_t clock = card::in_ns(*deadline) < card::realtime_base() / 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
  return card::wait_until_time(clock, deadline, [&](const timespec* until) { return next(condition, mutex, until); });
}

// Who holds a mutex works for real, which takes none of this time: no limit ends before it is free.
int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* deadline) noexcept {
  const auto next = next_of(&pthread_mutex_timedlock, "pthread_mutex_timedlock");
  return is_virtual() ? pthread_mutex_lock(mutex) : next(mutex, deadline);
}

// A process uses the processor for what its calls cost, and no page of its memory is new.
int getrusage(__rusage_who_t who, rusage* used) noexcept {
  if (const long failed = syscall(SYS_getrusage, who, used); failed != 0 || !is_virtual())
    return static_cast<int>(failed);
  const Ns spent = card::spent_by_process();
  used->ru_utime = {static_cast<time_t>(spent / card::kSecond), static_cast<suseconds_t>(spent % card::kSecond / 1000)};
  used->ru_stime = {};
  used->ru_minflt = used->ru_majflt = 0;
  return 0;
}

}  // extern "C"

namespace card {

namespace {

// A program that a test starts lives in its time from the beginning.
const bool begun = is_virtual();

}  // namespace

}  // namespace card
